"""protobuf: fields of a message are attributes. `protoc` makes such classes; here they are made by hand."""

from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
from orders import ROWS, attribute, over_orders

ORDER = {
    "name": "orders.proto",
    "messageType": [
        {
            "name": "Item",
            "field": [{"name": "name", "number": 1, "type": 9}, {"name": "price", "number": 2, "type": 2}],
        },
        {
            "name": "Order",
            "field": [
                {"name": "paid", "number": 1, "type": 8},
                {"name": "items", "number": 2, "type": 11, "typeName": "Item", "label": 3},
            ],
        },
    ],
}
file = json_format.ParseDict(ORDER, descriptor_pb2.FileDescriptorProto())
Order = message_factory.GetMessages([file], pool=descriptor_pool.DescriptorPool())["Order"]
EXAMPLES = [json_format.ParseDict(row, Order()) for row in ROWS]
doors = over_orders(attribute)
