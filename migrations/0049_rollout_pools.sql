-- Removes a pool's rollouts with the pool. A pool without claims can be removed.
--
-- The version before reads both tables as they are.
ALTER TABLE rollouts
    DROP CONSTRAINT object_in_use,
    DROP CONSTRAINT rollouts_target_id_fkey,
    ADD CONSTRAINT rollouts_pool_id_fkey FOREIGN KEY (pool_id) REFERENCES objects ON DELETE CASCADE,
    ADD CONSTRAINT rollouts_target_id_fkey FOREIGN KEY (target_id) REFERENCES pool_revisions ON DELETE CASCADE;
