-- Lists stay flat as a fleet grows: each sort and each filter of the grammar has its index.

-- Names are ASCII. In this order an index finds them by their beginning, whatever the database's own collation is, and no upgrade of the machine's
-- locales damages it.
ALTER TABLE nodes ALTER COLUMN name TYPE text COLLATE "C";
ALTER TABLE claims ALTER COLUMN name TYPE text COLLATE "C";

-- `label.gpu=h200`, and the selectors of claims. Without a list of pending entries, which every reader would have to go through.
CREATE INDEX nodes_labels ON nodes USING gin (labels jsonb_path_ops) WITH (fastupdate = off);
CREATE INDEX nodes_profile ON nodes (profile_id);
CREATE INDEX nodes_site ON nodes (site_id);

CREATE INDEX claims_pool ON claims (pool_id) WHERE state <> 'released';
CREATE INDEX claims_made ON claims (id) WHERE state <> 'released';

CREATE INDEX operations_state ON operations (state, id);
CREATE INDEX operations_kind ON operations (kind, id);
