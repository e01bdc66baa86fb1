"""Calls through a Sallyport broker: a client that resends nothing, and what to do with what comes back."""

from sallyport.client.client import Client
from sallyport.client.decide import Advice, Step, decide, decide_error
from sallyport.client.refusal import Refusal, explain

__all__ = ["Advice", "Client", "Refusal", "Step", "decide", "decide_error", "explain"]
