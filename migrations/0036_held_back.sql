-- What of a sweep loads a machine is run while its scheduler starts no job there. Until it is given back, that it takes no jobs is Muster's own doing.
ALTER TABLE nodes ADD COLUMN held_back boolean NOT NULL DEFAULT false;
ALTER TABLE nodes ADD CONSTRAINT nodes_held_back CHECK (NOT held_back OR state = 'in_service');
