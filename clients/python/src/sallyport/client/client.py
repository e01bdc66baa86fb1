"""The channel to a broker."""

import importlib.resources

import grpc

from sallyport.v1 import call_service_pb2_grpc

# A reply may hold a body of 16 MiB and its headers.
MAX_MESSAGE_BYTES = 20 << 20

# A retry by the library would send again what the broker refused to send again. Three locks, since each is easily lost: the
# service config has no retry policy, one that comes with name resolution is not read, and retries are off.
OPTIONS = [
    ("grpc.service_config", importlib.resources.files("sallyport.client").joinpath("service_config.json").read_text()),
    ("grpc.service_config_disable_resolution", 1),
    ("grpc.enable_retries", 0),
    # A proxy named by the environment would read the token.
    ("grpc.enable_http_proxy", 0),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
]


class Client:
    """Makes calls through one broker; close it, or use it in a with statement. Threads may share it.

    It connects when it is first used. Without credentials (grpc.ssl_channel_credentials() and its like) it speaks cleartext.
    """

    def __init__(self, target, credentials=None):
        if credentials is None:
            self._channel = grpc.insecure_channel(target, options=OPTIONS)
        else:
            self._channel = grpc.secure_channel(target, credentials, options=OPTIONS)
        self._stub = call_service_pb2_grpc.CallServiceStub(self._channel)

    def call(self, request, timeout):
        """Makes one call. timeout, in seconds, is all the time there is; the typed answer comes a little before its end.

        Raises grpc.RpcError, which speaks of the broker or of the way to it: see decide_error.
        """
        return self._stub.Call(request, timeout=timeout)

    def close(self):
        self._channel.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
