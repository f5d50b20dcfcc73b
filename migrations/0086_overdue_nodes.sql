-- The deadline that a node has missed, set together with the event `node.overdue`, once for each deadline. A server of the version before leaves the
-- column as it is: a value that differs from the present deadline means nothing.
ALTER TABLE nodes ADD COLUMN overdue_since timestamptz;
