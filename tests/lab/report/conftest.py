from browser import browser as browser
from browser import visit as visit
