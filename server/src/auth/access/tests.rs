//! Tests of scopes and rights.

use super::*;

fn grant(role: Role, scope: &str) -> Grant {
    Grant {
        role,
        scope: serde_json::from_str(scope).unwrap(),
        keeps_lost_verbs: false,
    }
}

#[test]
fn a_new_reference_and_a_new_object_need_the_site_in_the_scope() {
    let holding = |scope: &str| Holding {
        grants: vec![grant(Role::Operator, scope)],
        owner: None,
    };
    let labels = BTreeMap::from([("team".to_owned(), "a".to_owned())]);
    let cluster = Place {
        site: Some("a".into()),
        labels: labels.clone(),
        ..Place::default()
    };
    let rack = Place {
        rack: Some("r".into()),
        ..cluster.clone()
    };
    let pool = Place {
        pool: Some("p".into()),
        ..cluster.clone()
    };
    // The scope, then the cluster, the rack and the pool as targets, and as new objects.
    for (scope, targets, objects) in [
        ("{}", [true; 3], [true; 3]),
        (r#"{"site":"a"}"#, [true; 3], [true; 3]),
        (r#"{"site":"b"}"#, [false; 3], [false; 3]),
        (r#"{"pool":"p"}"#, [false; 3], [false; 3]),
        (r#"{"rack":"r"}"#, [false; 3], [false; 3]),
        (r#"{"labels":{"team":"a"}}"#, [false; 3], [false; 3]),
        (
            r#"{"site":"a","pool":"p"}"#,
            [true; 3],
            [false, false, true],
        ),
        (
            r#"{"site":"a","pool":"q"}"#,
            [true, true, false],
            [false; 3],
        ),
        (
            r#"{"site":"a","rack":"q"}"#,
            [true, false, true],
            [false; 3],
        ),
        (
            r#"{"site":"a","labels":{"team":"a"}}"#,
            [true; 3],
            [false; 3],
        ),
        (
            r#"{"site":"a","labels":{"team":"b"}}"#,
            [false; 3],
            [false; 3],
        ),
    ] {
        let holding = holding(scope);
        let places = [&cluster, &rack, &pool];
        let reached = places.map(|place| holding.reaches("pool.write", place));
        let created = places.map(|place| holding.creates("pool.write", place));
        assert_eq!((reached, created), (targets, objects), "{scope}");
    }
    assert!(!holding("{}").reaches("site.write", &cluster), "the verb");
}

#[test]
fn a_role_from_before_the_release_owner_keeps_the_release_verbs_alone() {
    let mut holding = Holding {
        grants: vec![grant(Role::Operator, "{}")],
        owner: None,
    };
    assert!(!holding.everywhere("stack.write") && holding.without_kept_verbs().is_none());
    holding.grants[0].keeps_lost_verbs = true;
    assert!(holding.everywhere("stack.write") && holding.somewhere("pool.set-release"));
    assert!(!holding.everywhere("node.rotate-bmc") && !holding.everywhere("site.write"));
    let next = holding.without_kept_verbs().unwrap();
    assert!(!next.everywhere("stack.write") && next.everywhere("node.wipe"));
    assert!(
        !holding.includes(Role::ReleaseOwner, &Scope::default()),
        "a kept verb is not passed on"
    );
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
