//! Links, refused requests, sessions and passwords.

use super::*;

#[tokio::test]
async fn every_link_leads_somewhere_and_nothing_is_open_but_the_root() {
    let bench = bench().await;
    let mut queue = vec!["/redfish/v1".to_owned()];
    let mut seen = std::collections::BTreeSet::new();
    while let Some(path) = queue.pop() {
        if !seen.insert(path.clone()) {
            continue;
        }
        let body = bench.get(&path).await;
        collect_links(&body, &mut queue);
        let open = bench
            .request(Method::GET, &path)
            .send()
            .await
            .unwrap()
            .status();
        assert_eq!(
            open == StatusCode::OK,
            path == "/redfish/v1",
            "{path}: {open}"
        );
    }
    assert!(seen.len() > 35, "{seen:?}");
}

fn collect_links(value: &Value, queue: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                match value.as_str().filter(|_| key == "@odata.id") {
                    Some(path) => queue.push(
                        path.split('#')
                            .next()
                            .unwrap_or(path)
                            .trim_end_matches('/')
                            .to_owned(),
                    ),
                    None => collect_links(value, queue),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect_links(item, queue)),
        _ => {}
    }
}

#[tokio::test]
async fn bad_requests_are_refused_with_a_message_and_change_nothing() {
    let bench = bench().await;
    let before = bench.get(SYSTEM).await;
    for (method, path, body, status, id) in [
        (
            Method::POST,
            RESET,
            json!({"ResetType": "Nmi"}),
            400,
            "PropertyValueNotInList",
        ),
        (Method::POST, RESET, json!({}), 400, "PropertyMissing"),
        (
            Method::PATCH,
            SYSTEM,
            json!({"Boot": {"BootSourceOverrideTarget": "Bogus"}}),
            400,
            "PropertyValueNotInList",
        ),
        (
            Method::PATCH,
            SYSTEM,
            json!({"Boot": {"BootSourceOverrideMode": "Legacy"}}),
            400,
            "PropertyValueNotInList",
        ),
        (
            Method::PATCH,
            SYSTEM,
            json!({"SerialNumber": "x"}),
            400,
            "PropertyNotWritable",
        ),
        (Method::POST, SYSTEM, json!({}), 405, "OperationNotAllowed"),
        (
            Method::PATCH,
            "/redfish/v1/Nothing",
            json!({}),
            404,
            "ResourceMissingAtURI",
        ),
        (
            Method::PATCH,
            "/redfish/v1/AccountService/Accounts/1",
            json!({"Password": "short"}),
            400,
            "PropertyValueFormatError",
        ),
    ] {
        let (seen, answer) = bench.write(method, path, body).await;
        assert_eq!(seen.as_u16(), status, "{path}: {answer}");
        assert_eq!(
            answer["error"]["@Message.ExtendedInfo"][0]["MessageId"],
            format!("Base.1.13.{id}"),
            "{path}"
        );
    }
    let stale = bench
        .authorised(Method::PATCH, SYSTEM)
        .header("if-match", "W/\"0\"")
        .json(&json!({"Boot": {}}))
        .send()
        .await
        .unwrap();
    assert_eq!(stale.status(), StatusCode::PRECONDITION_FAILED);
    assert_eq!(bench.get(SYSTEM).await, before);
}

#[tokio::test]
async fn a_session_ends_by_deletion_and_a_password_outlives_the_bmc() {
    let bench = bench().await;
    let login = json!({"UserName": bench.plan.user, "Password": bench.plan.password.reveal()});
    let response = bench
        .request(Method::POST, "/redfish/v1/SessionService/Sessions")
        .json(&login)
        .send()
        .await
        .unwrap();
    assert_eq!(response.status(), StatusCode::CREATED);
    let token = response.headers()["x-auth-token"]
        .to_str()
        .unwrap()
        .to_owned();
    let location = response.headers()["location"].to_str().unwrap().to_owned();
    let with_token = |method, path: &str| {
        bench
            .request(method, path)
            .header("x-auth-token", &token)
            .send()
    };
    assert_eq!(
        with_token(Method::GET, SYSTEM).await.unwrap().status(),
        StatusCode::OK
    );
    assert_eq!(
        with_token(Method::DELETE, &location)
            .await
            .unwrap()
            .status(),
        StatusCode::NO_CONTENT
    );
    assert_eq!(
        with_token(Method::GET, SYSTEM).await.unwrap().status(),
        StatusCode::UNAUTHORIZED
    );

    let change = json!({"Password": "a new long password"});
    assert_eq!(
        bench
            .write(
                Method::PATCH,
                "/redfish/v1/AccountService/Accounts/1",
                change
            )
            .await
            .0,
        StatusCode::NO_CONTENT
    );
    assert_eq!(bench.bmc.credentials().1.reveal(), "a new long password");
    let fingerprint = bench.bmc.fingerprint;
    let Bench {
        bmc,
        machine,
        plan,
        dir: _dir,
        ..
    } = bench;
    drop(bmc);
    let again = Bmc::start(
        machine,
        &plan,
        TcpListener::bind("127.0.0.1:0").unwrap(),
        None,
    )
    .unwrap();
    assert_eq!(again.credentials().1.reveal(), "a new long password");
    assert_eq!(
        again.fingerprint, fingerprint,
        "the certificate can be pinned"
    );
}

#[tokio::test]
async fn a_changed_password_locks_out_who_keeps_trying() {
    let bench = bench().await;
    bench.bmc.inject(Fault::always(FaultKind::PasswordChanged));
    for _ in 0..bench.plan.lockout_threshold {
        assert_eq!(
            bench
                .authorised(Method::GET, SYSTEM)
                .send()
                .await
                .unwrap()
                .status(),
            StatusCode::UNAUTHORIZED
        );
    }
    bench.bmc.clear_faults();
    assert_eq!(bench.bmc.lockouts(), 1);
    let locked = bench
        .authorised(Method::GET, SYSTEM)
        .send()
        .await
        .unwrap()
        .status();
    assert_eq!(
        locked,
        StatusCode::UNAUTHORIZED,
        "the right password does not help a locked account"
    );
    assert!(
        bench
            .bmc
            .events()
            .iter()
            .any(|event| event.message_id.ends_with("LoginFailed"))
    );
    // Secrets print as dots everywhere.
    assert!(!format!("{:?}", bench.bmc).contains(Secret::reveal(&bench.plan.password)));
}
