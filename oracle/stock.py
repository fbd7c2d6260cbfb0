"""A stock TensorFlow server, and the thinnest possible client for it.

The client sends raw GraphDefs and reads raw statuses, because the Python session checks graphs before they are sent and
so hides what the server would have answered. The wheel carries no `master_pb2`, so the few messages are declared here.
"""

import environment

import grpc
import tensorflow as tf
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from tensorflow.core.framework import graph_pb2, op_def_pb2
from tensorflow.core.protobuf import config_pb2, named_tensor_pb2
from tensorflow.python.client import pywrap_tf_session
from tensorflow.python.framework import kernels

VERSION = tf.__version__
GRAPH_VERSION = tf.compat.v1.GRAPH_DEF_VERSION
OK = 0

_FIELD = descriptor_pb2.FieldDescriptorProto
_MESSAGES = {
    "CreateSessionRequest": [
        (1, "graph_def", ".tensorflow.GraphDef"),
        (2, "config", ".tensorflow.ConfigProto"),
        (3, "target", "string"),
    ],
    "CreateSessionResponse": [(1, "session_handle", "string"), (2, "graph_version", "int64")],
    "ExtendSessionRequest": [
        (1, "session_handle", "string"),
        (2, "graph_def", ".tensorflow.GraphDef"),
        (3, "current_graph_version", "int64"),
    ],
    "ExtendSessionResponse": [(4, "new_graph_version", "int64")],
    "RunStepRequest": [
        (1, "session_handle", "string"),
        (2, "feed", "*.tensorflow.NamedTensorProto"),
        (3, "fetch", "*string"),
        (4, "target", "*string"),
        (5, "options", ".tensorflow.RunOptions"),
        (7, "store_errors_in_response_body", "bool"),
    ],
    "RunStepResponse": [
        (1, "tensor", "*.tensorflow.NamedTensorProto"),
        (3, "status_code", "int32"),
        (4, "status_error_message", "string"),
    ],
    "CloseSessionRequest": [(1, "session_handle", "string")],
    "CloseSessionResponse": [],
}


def _declare_messages():
    """Builds the messages in a package of their own: on the wire only field numbers count."""
    file = descriptor_pb2.FileDescriptorProto(name="oracle/master.proto", package="oracle", syntax="proto3")
    file.dependency.extend([graph_pb2.DESCRIPTOR.name, config_pb2.DESCRIPTOR.name, named_tensor_pb2.DESCRIPTOR.name])
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for number, field_name, kind in fields:
            field = message.field.add(name=field_name, number=number)
            field.label = _FIELD.LABEL_REPEATED if kind.startswith("*") else _FIELD.LABEL_OPTIONAL
            kind = kind.lstrip("*")
            if kind.startswith("."):
                field.type, field.type_name = _FIELD.TYPE_MESSAGE, kind
            else:
                field.type = getattr(_FIELD, "TYPE_" + kind.upper())
    pool = descriptor_pool.Default()
    pool.Add(file)
    get = message_factory.GetMessageClass
    return {name: get(pool.FindMessageTypeByName("oracle." + name)) for name in _MESSAGES}


_CLASSES = _declare_messages()


class StockError(Exception):
    """A status other than OK, with stock's code and message."""

    def __init__(self, code, message):
        super().__init__(f"{code}: {message}")
        self.code, self.message = code, message


class Client:
    """Calls the master of a server, stock's or ours."""

    def __init__(self, target):
        options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
        self._channel = grpc.insecure_channel(target.removeprefix("grpc://"), options=options)

    def call(self, method, **fields):
        stub = self._channel.unary_unary(
            "/tensorflow.MasterService/" + method,
            request_serializer=lambda request: request.SerializeToString(),
            response_deserializer=_CLASSES[method + "Response"].FromString,
        )
        try:
            return stub(_CLASSES[method + "Request"](**fields), timeout=60)
        except grpc.RpcError as error:
            raise StockError(error.code().value[0], error.details()) from None

    def session(self, graph):
        return StockSession(self, graph)


class Stock(Client):
    """One stock server in this process, with one CPU device."""

    def __init__(self):
        self._server = tf.distribute.Server.create_local_server()
        super().__init__(self._server.target)


class StockSession:
    """A session that shares nothing with others and whose graph no optimizer rewrites."""

    def __init__(self, stock, graph):
        config = config_pb2.ConfigProto(isolate_session_state=True, allow_soft_placement=True)
        config.graph_options.rewrite_options.disable_meta_optimizer = True
        config.graph_options.optimizer_options.opt_level = -1
        self._stock = stock
        self._handle = stock.call("CreateSession", graph_def=graph, config=config).session_handle

    def run(self, feeds, fetches, targets):
        """Runs one step; `feeds` are NamedTensorProtos. Returns TensorProtos in fetch order."""
        options = config_pb2.RunOptions(timeout_in_ms=20000)
        response = self._stock.call(
            "RunStep",
            session_handle=self._handle,
            feed=feeds,
            fetch=fetches,
            target=targets,
            store_errors_in_response_body=True,
            options=options,
        )
        if response.status_code != OK:
            raise StockError(response.status_code, response.status_error_message)
        by_name = {named.name: named.tensor for named in response.tensor}
        return [by_name[name] for name in fetches]

    def close(self):
        self._stock.call("CloseSession", session_handle=self._handle)


def op_defs():
    """Every registered op, internal ones included, by name."""
    ops = op_def_pb2.OpList.FromString(pywrap_tf_session.TF_GetBuffer(pywrap_tf_session.TF_GetAllOpList()))
    return {op.name: op for op in sorted(ops.op, key=lambda op: op.name)}


def cpu_kernels(op=None):
    """The KernelDefs of `op`, or of all ops, that a CPU device can use."""
    found = kernels.get_registered_kernels_for_op(op) if op else kernels.get_all_registered_kernels()
    return [kernel for kernel in found.kernel if kernel.device_type in ("CPU", "DEFAULT")]
