-- Whoever else listed an adopted node has let it go once it has left its cluster: from then on it is Muster's to list. Those that left it before.
UPDATE nodes SET adopted = false
WHERE adopted AND state NOT IN ('in_service', 'draining') AND NOT (state = 'failed' AND failed_phase = 'draining');
