-- A node in service may be asked to be compared with its stack: a look that changes nothing.
ALTER TABLE nodes DROP CONSTRAINT nodes_wish_check;
ALTER TABLE nodes ADD CONSTRAINT nodes_wish_check CHECK (wish IN ('accept', 'reject', 'inspect', 'release', 'retry', 'quarantine', 'recover', 'wipe',
    'drain', 'undrain', 'maintain', 'resume', 'retire', 'reinstate', 'replace-parts', 'adopt', 'check-drift'));
