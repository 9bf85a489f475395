"""What members of a group are answered, from the group as it is."""

from odradek.coordinator.group import Group, Member
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from odradek.wire.messages.sync_group import SyncGroupResponse
from odradek.wire.reply import Reply

JoinReply = Reply[JoinGroupResponse]
SyncReply = Reply[SyncGroupResponse]


def join_response(group: Group, member: Member) -> JoinGroupResponse:
    members = []
    if group.is_leader(member.id):
        members = [
            JoinGroupResponseMember(
                member_id=other.id,
                group_instance_id=other.instance_id,
                metadata=other.metadata(group.protocol),
            )
            for other in group.members.values()
        ]
    return JoinGroupResponse(
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol or "",
        leader=group.leader or "",
        member_id=member.id,
        members=members,
    )


def sync_response(group: Group, member: Member) -> SyncGroupResponse:
    return SyncGroupResponse(
        protocol_type=group.protocol_type,
        protocol_name=group.protocol,
        assignment=member.assignment,
    )


def refused_join(member_id: str, error: ErrorCode) -> JoinGroupResponse:
    return JoinGroupResponse(member_id=member_id, error_code=error)


def refusal(member_id: str, error: ErrorCode) -> JoinReply:
    return Reply.now(refused_join(member_id, error))
