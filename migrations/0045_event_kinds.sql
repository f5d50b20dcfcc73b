-- Kinds of events that were renamed (core/src/event_kinds.rs). Events keep the kind they were written with: the history is sealed.
-- A webhook's topics name the present kinds.
UPDATE objects SET spec = jsonb_set(spec, '{topics}', (
    SELECT jsonb_agg(COALESCE(renamed.present, topic.kind) ORDER BY topic.position)
    FROM jsonb_array_elements_text(spec -> 'topics') WITH ORDINALITY AS topic (kind, position)
    LEFT JOIN (VALUES
        ('agent.clock_right', 'agent.clock_restored'),
        ('approval.asked', 'approval.requested'),
        ('claim.not_replaced', 'claim.replacement_failed'),
        ('drift.mended', 'drift.resolved'),
        ('node.asked', 'node.action_requested'),
        ('node.disks_out', 'node.disks_removed'),
        ('node.wish_granted', 'node.action_done'),
        ('node.wish_refused', 'node.action_refused'),
        ('operation.cancel_asked', 'operation.cancel_requested'),
        ('pairs.begun', 'pairs.started'),
        ('recovery.begun', 'recovery.started'),
        ('step.held_back', 'step.unreadable'),
        ('waiver.agreed', 'waiver.approved'),
        ('waiver.asked', 'waiver.requested')
    ) AS renamed (former, present) ON renamed.former = topic.kind))
WHERE kind = 'webhook' AND jsonb_typeof(spec -> 'topics') = 'array' AND jsonb_array_length(spec -> 'topics') > 0;
