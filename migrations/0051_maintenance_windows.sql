-- Maintenance windows are declared objects.

ALTER TABLE objects DROP CONSTRAINT objects_kind_check;
ALTER TABLE objects ADD CONSTRAINT objects_kind_check CHECK (kind IN ('site', 'rack', 'subnet', 'hardware_profile', 'network_profile',
    'maintenance_window', 'image', 'stack', 'suite', 'cluster', 'pool', 'credential', 'role_binding', 'webhook'));
