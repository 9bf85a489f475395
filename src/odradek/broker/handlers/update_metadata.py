"""UpdateMetadata (6), v0–v8. The controller says who is alive and who leads what.

Requests that wait here for a topic to be created, extended or deleted, or for a leader to be
elected, are woken. The controller of our own dialect sends v6.
docs/spec/controller-and-replication.md section 5.6.
"""

from odradek.broker.handler import Broker, RequestContext
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse


def handle(
    broker: Broker, request: UpdateMetadataRequest, context: RequestContext
) -> UpdateMetadataResponse:
    response = broker.replicas.control_requests.update_metadata(request)
    if response.error_code == ErrorCode.NONE:
        topics = {topic.topic_name for topic in request.topic_states}
        topics.update(state.topic_name for state in request.ungrouped_partition_states)
        broker.metadata_updated(topics)
    return response
