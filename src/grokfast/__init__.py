"""Accelerated grokking: amplify the slow part of the gradients of any PyTorch optimizer."""

from grokfast.binding.attach import attach as attach
from grokfast.binding.handle import Attachment as Attachment
from grokfast.filters import EMA as EMA
from grokfast.filters import FIR as FIR
from grokfast.filters import IIR as IIR
from grokfast.filters import MA as MA
from grokfast.filters import Butterworth as Butterworth
from grokfast.filters import Filter as Filter
from grokfast.functional import gradfilter_ema as gradfilter_ema
from grokfast.functional import gradfilter_ma as gradfilter_ma
from grokfast.stages import Saturation as Saturation
from grokfast.stages import Trigger as Trigger

__version__ = "0.1.0"
