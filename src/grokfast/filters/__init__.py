"""Causal linear filters, which compute what is added to a gradient: arithmetic on lists of tensors."""

from grokfast.filters.base import Filter as Filter
from grokfast.filters.base import Slow as Slow
from grokfast.filters.ema import EMA as EMA
from grokfast.filters.linear import FIR as FIR
from grokfast.filters.linear import IIR as IIR
from grokfast.filters.linear import Butterworth as Butterworth
from grokfast.filters.ma import MA as MA
