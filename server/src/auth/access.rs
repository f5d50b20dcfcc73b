//! What an actor may do, and where. What they hold is a list of roles within scopes; what they ask to touch lies at a place.

use muster_api::access::{self, Scope};
use muster_api::tokens::Role;
use muster_core::ids::NodeId;
use sqlx::PgConnection;

use super::Actor;
use super::routes::Where;
use crate::access::{Grant, Place, Sight};
use crate::db;
use crate::error::Error;

impl Grant {
    /// Whether it lets its holder do this there.
    fn covers(&self, verb: &str, place: &Place) -> bool {
        let Place {
            site,
            rack,
            pool,
            labels,
        } = place.clone();
        access::has(self.role, verb)
            && Scope {
                site,
                rack,
                pool,
                labels,
            }
            .within(&self.scope)
    }
}

/// What somebody holds, and what bounds it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holding {
    pub grants: Vec<Grant>,
    /// A person's token may no more than the person may today.
    pub owner: Option<Vec<Grant>>,
}

impl Holding {
    fn all(&self, allows: impl Fn(&Grant) -> bool) -> bool {
        self.grants.iter().any(&allows)
            && self
                .owner
                .as_ref()
                .is_none_or(|grants| grants.iter().any(&allows))
    }

    /// Whether it lets its holder do this everywhere.
    pub fn everywhere(&self, verb: &str) -> bool {
        self.all(|grant| access::has(grant.role, verb) && grant.scope.is_everywhere())
    }

    /// Whether there is a place where it lets its holder do this.
    pub fn somewhere(&self, verb: &str) -> bool {
        self.all(|grant| access::has(grant.role, verb))
    }

    /// Whether it lets its holder do this there.
    pub fn there(&self, verb: &str, place: &Place) -> bool {
        self.all(|grant| grant.covers(verb, place))
    }

    /// Within what it lets its holder do this: an object must lie in one of each of these lists. Empty for everywhere.
    pub fn sight(&self, verb: &str) -> Sight {
        let lists = [Some(&self.grants), self.owner.as_ref()]
            .into_iter()
            .flatten();
        let scopes = |grants: &Vec<Grant>| {
            grants
                .iter()
                .filter(|grant| access::has(grant.role, verb))
                .map(|grant| grant.scope.clone())
                .collect()
        };
        lists
            .map(scopes)
            .filter(|scopes: &Vec<Scope>| !scopes.iter().any(Scope::is_everywhere))
            .collect()
    }

    /// Whether a role within a scope is no more than this.
    pub fn includes(&self, role: Role, scope: &Scope) -> bool {
        self.all(|grant| access::within(role, grant.role) && scope.within(&grant.scope))
    }
}

/// An object that a request names.
#[derive(Clone, Copy, Debug)]
pub struct Named<'request> {
    pub kind: &'request str,
    /// Name or id.
    pub key: &'request str,
}

impl Actor {
    /// Refuses what needs a right over the whole fleet.
    ///
    /// # Errors
    /// [`Error::Forbidden`].
    pub fn need_everywhere(&self, verb: &str) -> Result<(), Error> {
        match self.holding.everywhere(verb) {
            true => Ok(()),
            false => Err(self.lacks(verb, " over the whole fleet")),
        }
    }

    /// Refuses what they may nowhere.
    ///
    /// # Errors
    /// [`Error::Forbidden`].
    pub fn need_somewhere(&self, verb: &str) -> Result<(), Error> {
        match self.holding.somewhere(verb) {
            true => Ok(()),
            false => Err(self.lacks(verb, "")),
        }
    }

    /// Refuses what they may not do to an object: the other end of a relation, or the object as this transaction made it. What they may not even
    /// read does not exist for them; what does not exist is for the caller to tell.
    ///
    /// # Errors
    /// [`Error::Forbidden`], [`Error::NotFound`], the database's.
    pub async fn need(
        &self,
        conn: &mut PgConnection,
        verb: &str,
        object: Named<'_>,
    ) -> Result<(), Error> {
        if self.holding.everywhere(verb) {
            return Ok(());
        }
        let Some(place) = db::access::place(conn, object.kind, object.key).await? else {
            return self.need_somewhere(verb);
        };
        if self.holding.there(verb, &place) {
            return Ok(());
        }
        match self.holding.there("fleet.read", &place) {
            true => Err(self.lacks(
                verb,
                &format!(" for {} {}", object.kind.replace('_', " "), object.key),
            )),
            false => Err(Error::NotFound(format!("{} {:?}", object.kind, object.key))),
        }
    }

    /// What they may read, for lists.
    pub fn sight(&self) -> Sight {
        self.holding.sight("fleet.read")
    }

    /// The node of this name or id, where there is one and they may read it.
    ///
    /// # Errors
    /// The database's.
    pub async fn find_node(
        &self,
        conn: &mut PgConnection,
        key: &str,
    ) -> Result<Option<NodeId>, Error> {
        match self
            .need(conn, "fleet.read", Named { kind: "node", key })
            .await
        {
            Ok(()) => db::nodes::find_id(conn, key).await,
            Err(Error::NotFound(_) | Error::Forbidden(_)) => Ok(None),
            Err(other) => Err(other),
        }
    }

    fn lacks(&self, verb: &str, whereabouts: &str) -> Error {
        Error::Forbidden(format!(
            "This needs {verb}{whereabouts}, which {} has not.",
            self.name
        ))
    }

    /// Looks at one request, as its route says what it needs.
    ///
    /// # Errors
    /// As [`Actor::need`].
    pub(super) async fn need_for(
        &self,
        app: &crate::app::App,
        verb: &str,
        whereabouts: Where,
        parameters: &[(String, String)],
    ) -> Result<(), Error> {
        let key = |name: &str| {
            parameters
                .iter()
                .find(|(known, _)| known == name)
                .map_or("", |(_, value)| value)
        };
        let named = |kind, parameter| {
            Some(Named {
                kind,
                key: key(parameter),
            })
        };
        let object = match whereabouts {
            Where::Everywhere => return self.need_everywhere(verb),
            Where::Somewhere => return self.need_somewhere(verb),
            Where::At(kind, parameter) => named(kind, parameter),
        };
        let (true, Some(object)) = (!self.holding.everywhere(verb), object) else {
            return Ok(());
        };
        self.need(&mut *app.pool.acquire().await?, verb, object)
            .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant(role: Role, scope: &str) -> Grant {
        Grant {
            role,
            scope: serde_json::from_str(scope).unwrap(),
        }
    }

    #[test]
    fn a_grant_reaches_as_far_as_its_scope_and_its_owner() {
        let place = Place {
            site: Some("a".into()),
            rack: Some("r".into()),
            ..Place::default()
        };
        let other = Place {
            site: Some("b".into()),
            ..Place::default()
        };
        let mut holding = Holding {
            grants: vec![grant(Role::Operator, r#"{"site":"a"}"#)],
            owner: None,
        };
        assert!(holding.there("node.wipe", &place) && holding.somewhere("node.wipe"));
        assert!(!holding.there("node.wipe", &other) && !holding.everywhere("node.wipe"));
        assert!(
            !holding.there("node.wipe", &Place::default()),
            "what lies nowhere is nobody's part"
        );
        assert!(!holding.there("site.write", &place));
        assert!(holding.includes(
            Role::Viewer,
            &serde_json::from_str(r#"{"site":"a","pool":"p"}"#).unwrap()
        ));
        assert!(
            !holding.includes(Role::Viewer, &Scope::default())
                && !holding.includes(Role::Admin, &holding.grants[0].scope)
        );
        holding.owner = Some(vec![grant(Role::Viewer, "{}")]);
        assert!(holding.there("fleet.read", &place) && !holding.there("node.wipe", &place));
        assert_eq!(
            holding.sight("fleet.read"),
            [[holding.grants[0].scope.clone()]],
            "the owner's is everywhere"
        );
        holding.owner = Some(Vec::new());
        assert_eq!(holding.sight("fleet.read").len(), 2);
        assert!(!holding.somewhere("fleet.read"));
    }
}
