-- Signing keys are declared objects: public keys of release owners, whose signatures of images the fleet trusts.

ALTER TABLE objects DROP CONSTRAINT objects_kind_check;
ALTER TABLE objects ADD CONSTRAINT objects_kind_check CHECK (kind IN ('site', 'rack', 'subnet', 'hardware_profile', 'network_profile',
    'maintenance_window', 'monitor', 'signing_key', 'image', 'stack', 'suite', 'cluster', 'pool', 'credential', 'role_binding', 'webhook'));
