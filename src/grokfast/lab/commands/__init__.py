"""What the commands do, and what they print. Only these modules and terminal.py print."""
