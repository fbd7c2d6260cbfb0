"""Raw calls: the protocol's messages without a TensorFlow client in between, for what a client would never send."""

import pathlib

import grpc
import tensorflow as tf
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_DESCRIPTORS = pathlib.Path(__file__).parents[2] / "crates/proto/src/generated/descriptors.bin"


def _messages():
    pool = descriptor_pool.DescriptorPool()
    files = descriptor_pb2.FileDescriptorSet.FromString(_DESCRIPTORS.read_bytes())
    for file in files.file:
        pool.Add(file)
    return pool


_POOL = _messages()


def message(name):
    """The class of a message of package `tensorflow`."""
    return message_factory.GetMessageClass(_POOL.FindMessageTypeByName(f"tensorflow.{name}"))


def convert(name, other):
    """A message of our own descriptors equal to TensorFlow's `other`."""
    return message(name).FromString(other.SerializeToString())


def named_tensor(name, value):
    """A feed."""
    tensor = convert("TensorProto", tf.make_tensor_proto(value))
    return message("NamedTensorProto")(name=name, tensor=tensor)


class Caller:
    """Calls the services of one server."""

    def __init__(self, target):
        options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
        self.channel = grpc.insecure_channel(target.removeprefix("grpc://"), options=options)

    def raw(self, path, data, timeout=30, metadata=None):
        """Bytes in, bytes out; a failed call gives (code, details, payload keys)."""
        call = self.channel.unary_unary(path, request_serializer=None, response_deserializer=None)
        try:
            return call(data, timeout=timeout, metadata=metadata)
        except grpc.RpcError as error:
            details = [value for key, value in error.trailing_metadata() if key == "grpc-status-details-bin"]
            container = message("distributed_runtime.GrpcPayloadContainer")
            keys = [key for value in details for key in sorted(container.FromString(value).payloads)]
            return error.code().name, error.details(), keys

    def __call__(self, method, request=None, service="Master", **fields):
        """Calls `method`, with `fields` of its request or a whole one; a failed call gives (code, details, keys)."""
        if request is None:
            request = message(f"{method}Request")(**fields)
        answer = self.raw(f"/tensorflow.{service}Service/{method}", request.SerializeToString())
        return message(f"{method}Response").FromString(answer) if isinstance(answer, bytes) else answer
