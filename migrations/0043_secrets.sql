-- A release before this one took a JSON array in the place of a spec, and stored the array as it was sent: of a credential or webhook with the secret
-- in the clear. The secret itself was also sealed. Each array becomes the object that it was read as, without the secret. Whoever could read the
-- objects or a backup may have seen such a secret: change it.
UPDATE objects SET spec = jsonb_strip_nulls(jsonb_build_object('purpose', spec -> 0, 'user', spec -> 1))
WHERE kind = 'credential' AND jsonb_typeof(spec) = 'array';
UPDATE objects SET spec = jsonb_strip_nulls(jsonb_build_object('url', spec -> 0, 'topics', spec -> 1, 'site', spec -> 2, 'enabled', spec -> 3, 'description', spec -> 4))
WHERE kind = 'webhook' AND jsonb_typeof(spec) = 'array';
