-- Lists of nodes run by name or by age. What they are filtered by often lies in runs: the nodes of a rack follow each other in both orders, so between
-- two nodes of racks that fit lie thousands of racks that do not. Each of those nodes was fetched from the table to be passed by: 25,000 rows for one
-- page of `rack~"r1*"` in a fleet of 100,000. With these columns beside the key, they are passed by in the index.
CREATE INDEX nodes_by_name ON nodes (name) INCLUDE (id, state, site_id, rack_id, profile_id);
CREATE INDEX nodes_by_id ON nodes (id) INCLUDE (name, state, site_id, rack_id, profile_id);

-- An index answers alone only where the table is known to have no old rows; a fifth of 100,000 nodes, as the default is, is too late for that.
ALTER TABLE nodes SET (autovacuum_vacuum_scale_factor = 0.02);
