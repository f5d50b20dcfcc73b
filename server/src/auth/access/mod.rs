//! Access checks: verbs allowed to an actor, and the scopes of each right. An actor holds a list of
//! roles within scopes. Every requested object has a place.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use muster_api::access::{self, Scope};
use muster_api::tokens::Role;
use muster_core::ids::NodeId;
use sqlx::PgConnection;

use super::Actor;
use super::needs::{Need, Reach};
use crate::access::{Grant, Place, Sight};
use crate::db;
use crate::error::Error;

impl Grant {
    /// Returns whether the grant allows the verb at the place.
    fn covers(&self, verb: &str, place: &Place) -> bool {
        let Place {
            site,
            rack,
            pool,
            labels,
        } = place.clone();
        self.has(verb)
            && Scope {
                site,
                rack,
                pool,
                labels,
            }
            .within(&self.scope)
    }

    /// Returns whether a new reference of a document may lead to the place. A scope without a site
    /// reaches no such place. A rack or pool in the scope limits the document, and is compared only
    /// with a target in a rack or pool.
    fn reaches(&self, verb: &str, target: &Place) -> bool {
        let scope = &self.scope;
        let seen = Place {
            rack: target.rack.clone().or_else(|| scope.rack.clone()),
            pool: target.pool.clone().or_else(|| scope.pool.clone()),
            ..target.clone()
        };
        (scope.is_everywhere() || scope.site.is_some()) && self.covers(verb, &seen)
    }

    /// Returns whether an object may be created at the place. The labels were chosen by the actor,
    /// and do not count.
    fn creates(&self, verb: &str, place: &Place) -> bool {
        let bare = Place {
            labels: BTreeMap::new(),
            ..place.clone()
        };
        (self.scope.is_everywhere() || self.scope.site.is_some()) && self.covers(verb, &bare)
    }
}

/// The grants of an actor, and their upper limit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holding {
    pub grants: Vec<Grant>,
    /// For a person's token: the present grants of the person. The token's rights never exceed the
    /// person's rights of today.
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

    /// Returns whether the verb is allowed over the whole fleet.
    pub fn everywhere(&self, verb: &str) -> bool {
        self.all(|grant| grant.has(verb) && grant.scope.is_everywhere())
    }

    /// Returns whether the verb is allowed in at least one place.
    pub fn somewhere(&self, verb: &str) -> bool {
        self.all(|grant| grant.has(verb))
    }

    /// Returns whether the verb is allowed at the place.
    pub fn there(&self, verb: &str, place: &Place) -> bool {
        self.all(|grant| grant.covers(verb, place))
    }

    /// Returns whether a document written with the verb may get a reference to the place.
    fn reaches(&self, verb: &str, target: &Place) -> bool {
        self.all(|grant| grant.reaches(verb, target))
    }

    /// Returns whether the verb allows a new object at the place.
    fn creates(&self, verb: &str, place: &Place) -> bool {
        self.all(|grant| grant.creates(verb, place))
    }

    /// Returns the holding of the next version, without verbs kept by older roles. `None` where no
    /// role keeps any.
    pub fn without_kept_verbs(&self) -> Option<Self> {
        let mut next = self.clone();
        let owners = next.owner.iter_mut().flatten();
        for grant in next.grants.iter_mut().chain(owners) {
            grant.keeps_lost_verbs = false;
        }
        (next != *self).then_some(next)
    }

    /// Returns the scopes in which the verb is allowed. An object must match one scope of each
    /// list. Empty means everywhere.
    pub fn sight(&self, verb: &str) -> Sight {
        let lists = [Some(&self.grants), self.owner.as_ref()]
            .into_iter()
            .flatten();
        let scopes = |grants: &Vec<Grant>| {
            grants
                .iter()
                .filter(|grant| grant.has(verb))
                .map(|grant| grant.scope.clone())
                .collect()
        };
        lists
            .map(scopes)
            .filter(|scopes: &Vec<Scope>| !scopes.iter().any(Scope::is_everywhere))
            .collect()
    }

    /// Returns whether the holder's grants include the role within the scope.
    pub fn includes(&self, role: Role, scope: &Scope) -> bool {
        self.all(|grant| access::within(role, grant.role) && scope.within(&grant.scope))
    }
}

/// The largest number of nodes whose places are compared with a read scope.
pub(crate) const COMPARED: usize = 200;

/// An object named by a request.
#[derive(Clone, Copy, Debug)]
pub struct Named<'request> {
    pub kind: &'request str,
    /// Name or id.
    pub key: &'request str,
}

impl Actor {
    /// Rejects an actor without the right over the whole fleet.
    ///
    /// # Errors
    ///
    /// [`Error::Forbidden`].
    pub fn need_everywhere(&self, verb: &str) -> Result<(), Error> {
        match self.holding.everywhere(verb) {
            true => Ok(()),
            false => Err(self.lacks(verb, " over the whole fleet")),
        }
    }

    /// Rejects an actor without the right in any place.
    ///
    /// # Errors
    ///
    /// [`Error::Forbidden`].
    pub fn need_somewhere(&self, verb: &str) -> Result<(), Error> {
        match self.holding.somewhere(verb) {
            true => Ok(()),
            false => Err(self.lacks(verb, "")),
        }
    }

    /// Rejects an actor without the right to an object: the object before a change, or the other
    /// end of a relation. An unreadable object is reported as missing. The caller reports an object
    /// missing from the database.
    ///
    /// # Errors
    ///
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
        let Some(place) = db::access::find_place(conn, object.kind, object.key).await? else {
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

    /// Returns whether the actor has the right to an object.
    ///
    /// # Errors
    ///
    /// The database's.
    pub async fn may(
        &self,
        conn: &mut PgConnection,
        verb: &str,
        object: Named<'_>,
    ) -> Result<bool, Error> {
        match self.need(conn, verb, object).await {
            Ok(()) => Ok(true),
            Err(Error::Forbidden(_) | Error::NotFound(_)) => Ok(false),
            Err(other) => Err(other),
        }
    }

    /// Rejects an actor without the right to the object as created by this transaction.
    ///
    /// # Errors
    ///
    /// [`Error::Forbidden`], the database's.
    pub async fn need_created(
        &self,
        conn: &mut PgConnection,
        verb: &str,
        object: Named<'_>,
    ) -> Result<(), Error> {
        let because =
            " at the place of the new object, in a scope with its site and without labels";
        let place = self.find_written(conn, verb, object).await?;
        self.allow(place, verb, Holding::creates, because)
    }

    /// Rejects an actor without the right to the object as changed by this transaction.
    ///
    /// # Errors
    ///
    /// [`Error::Forbidden`], the database's.
    pub async fn need_changed(
        &self,
        conn: &mut PgConnection,
        verb: &str,
        object: Named<'_>,
    ) -> Result<(), Error> {
        let because = " at the place of the object after the write as well";
        let place = self.find_written(conn, verb, object).await?;
        self.allow(place, verb, Holding::there, because)
    }

    /// Returns the place of an object after the write. `None` for an actor with the right over the
    /// whole fleet.
    async fn find_written(
        &self,
        conn: &mut PgConnection,
        verb: &str,
        object: Named<'_>,
    ) -> Result<Option<Place>, Error> {
        if self.holding.everywhere(verb) {
            return Ok(None);
        }
        let place = db::access::find_place(conn, object.kind, object.key).await?;
        Ok(Some(place.unwrap_or_default()))
    }

    /// Rejects an actor without the verb at the place, by the given rule. No place needs no rule.
    fn allow(
        &self,
        place: Option<Place>,
        verb: &str,
        rule: fn(&Holding, &str, &Place) -> bool,
        because: &str,
    ) -> Result<(), Error> {
        match place {
            Some(place) if !rule(&self.holding, verb, &place) => Err(self.lacks(verb, because)),
            Some(_) | None => Ok(()),
        }
    }

    /// Returns whether a document written with the verb may get a reference to the object. False
    /// for an unreadable object, to be reported as missing.
    ///
    /// # Errors
    ///
    /// [`Error::Forbidden`] for a readable object, the database's.
    pub async fn may_refer(
        &self,
        conn: &mut PgConnection,
        verb: &str,
        target: Named<'_>,
    ) -> Result<bool, Error> {
        if self.holding.everywhere(verb) {
            return Ok(true);
        }
        let place = db::access::find_place(conn, target.kind, target.key).await?;
        let Some(place) = place else {
            return Ok(false);
        };
        if self.holding.reaches(verb, &place) {
            return Ok(true);
        }
        let Named { kind, key } = target;
        match self.holding.there("fleet.read", &place) {
            true => Err(self.lacks(
                verb,
                &format!(" for {kind} {key}, in a scope with the site of the {kind}"),
            )),
            false => Ok(false),
        }
    }

    /// Returns the actor's read scope, for lists.
    pub fn sight(&self) -> Sight {
        self.holding.sight("fleet.read")
    }

    /// Returns the node of the name or id, if the node exists and the actor may read the node.
    ///
    /// # Errors
    ///
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

    /// Keeps the names of nodes within the read scope, `most` at most. The places of the first 200
    /// nodes are compared, because each comparison is a query.
    ///
    /// # Errors
    ///
    /// The database's.
    pub async fn keep_readable(
        &self,
        conn: &mut PgConnection,
        names: Vec<String>,
        most: usize,
    ) -> Result<Vec<String>, Error> {
        let mut readable = Vec::new();
        if self.sight().is_empty() {
            readable.extend(names.into_iter().take(most));
            return Ok(readable);
        }
        for name in names.into_iter().take(COMPARED) {
            if readable.len() == most {
                break;
            }
            if self.find_node(conn, &name).await?.is_some() {
                readable.push(name);
            }
        }
        Ok(readable)
    }

    fn lacks(&self, verb: &str, whereabouts: &str) -> Error {
        Error::Forbidden(format!(
            "This needs {verb}{whereabouts}, which {} has not.",
            self.name
        ))
    }

    /// Checks one request against the needs of the route.
    ///
    /// # Errors
    ///
    /// As [`Actor::need`].
    pub(super) async fn need_for(
        &self,
        app: &crate::app::App,
        need: &Need,
        parameters: &[(String, String)],
    ) -> Result<(), Error> {
        let verb = need.verb(parameters);
        let key = |name: &str| {
            parameters
                .iter()
                .find(|(known, _)| known == name)
                .map_or("", |(_, value)| value)
        };
        let object = match &need.place {
            Reach::Fleet => return self.need_everywhere(&verb),
            Reach::Any => return self.need_somewhere(&verb),
            Reach::At { kind, parameter } => Named {
                kind,
                key: key(parameter),
            },
        };
        if self.holding.everywhere(&verb) {
            return Ok(());
        }
        self.need(&mut *app.pool.acquire().await?, &verb, object)
            .await
    }
}
