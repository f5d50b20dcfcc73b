//! The real server, engine and agents' listener over simulated machines. The test moves the clock,
//! and no code sleeps.

mod oracle; // Invariants after any fault

use std::sync::{Arc, Mutex, MutexGuard};

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use jiff::SignedDuration;
use muster_agent::work::client::Client;
use muster_agent::work::marks::Marks;
use muster_core::clock::Clock;
use muster_core::gates::Verdict;
use muster_core::values::{Mac, Secret};
use muster_core::wire::job::Job;
use muster_core::wire::node::Failure;
use muster_core::wire::orders::{self, ORDERS};
use muster_core::wire::result::Outcome;
use muster_lab::simulated::agent::calls::{Answered, Call, Listener, Mark};
use muster_lab::simulated::agent::{Agent, IMMORTAL, Stop};
use muster_lab::simulated::machine::{Machine, Turn};
use muster_lab::simulated::rack::Rack;
use muster_server::engine;
use muster_server::tasks::leases;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::support::agents::in_process;
use crate::support::fleet;
use crate::support::postgres::Backup;
use crate::support::server::{Caller, Reply, Server};

/// More passes than any test needs. Beyond the limit, the test is in an endless loop.
const PASSES: u32 = 2000;

/// The states of a node at rest, until the next request.
const RESTING: [&str; 7] = [
    "discovered",
    "available",
    "in_service",
    "quarantined",
    "failed",
    "maintenance",
    "retired",
];

pub(crate) struct World {
    pub(crate) server: Server,
    pub(crate) admin: Caller,
    pub(crate) agent: Agent,
    rack: Arc<Mutex<Rack>>,
    listener: Arc<dyn Listener>,
    token: String,
    /// The number of steps until the next agent process dies.
    pub(crate) fuel: Fuel,
}

/// The listener's router, called without a socket by an agent. `reads` lists the members of orders
/// that the agent can read. An answer with a member beyond `reads` fails the test.
struct InProcess {
    router: Router,
    reads: String,
}

impl Listener for InProcess {
    fn post(&self, call: Call) -> BoxFuture<'_, Answered> {
        async move {
            let mut request = Request::post(call.path)
                .header("authorization", format!("Bearer {}", call.token))
                .header("content-type", "application/json");
            for (name, value) in call.heard.iter().flat_map(Mark::headers) {
                request = request.header(name, value);
            }
            request = request.header(ORDERS, &self.reads);
            let response = self
                .router
                .clone()
                .oneshot(request.body(Body::from(call.body)).unwrap())
                .await
                .unwrap();
            let status = response.status().as_u16();
            let mark = Mark::of(response.headers());
            let body = axum::body::to_bytes(response.into_body(), 64 << 20)
                .await
                .unwrap()
                .to_vec();
            let text = String::from_utf8_lossy(&body);
            for member in orders::MEMBERS
                .iter()
                .filter(|member| !self.reads.contains(**member))
            {
                assert!(
                    !text.contains(&format!("\"{member}\":")),
                    "it cannot read {member}: {text}"
                );
            }
            Answered { status, mark, body }
        }
        .boxed()
    }
}

/// The lifetime of agent processes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fuel {
    Forever,
    /// The process after a dead process lives a step longer. A successful job resets the number to
    /// 1.
    OneMore(u32),
    /// Each process dies at the given step of a job's first attempt. Later attempts finish the job.
    First(u32),
}

impl World {
    /// Declares and accepts the nodes `n1`…, and does no work yet.
    pub(crate) async fn start(nodes: u8) -> Self {
        Self::declare(nodes, |_, body| body).await
    }

    /// Starts a world with changed documents. `change` gets the path and the document.
    pub(crate) async fn declare(nodes: u8, change: impl Fn(&str, Value) -> Value) -> Self {
        Self::on(Server::start().await, nodes, change).await
    }

    /// A world with changed documents. All nodes are claimed for the pool and in service.
    pub(crate) async fn serving(nodes: u8, change: impl Fn(&str, Value) -> Value) -> Self {
        let mut world = Self::declare(nodes, change).await;
        world.settle().await;
        for number in 1..=nodes {
            world.claim(&format!("n{number}")).await.expect(201);
        }
        world.settle().await;
        for number in 1..=nodes {
            assert_eq!(world.state(&format!("n{number}")).await, "in_service");
        }
        world
    }

    /// Declares the documents on a server that already runs.
    pub(crate) async fn on(
        server: Server,
        nodes: u8,
        change: impl Fn(&str, Value) -> Value,
    ) -> Self {
        let admin = server.admin().await;
        sqlx::raw_sql(include_str!("ledger.sql"))
            .execute(&server.app.pool)
            .await
            .unwrap();
        for (path, body) in documents(nodes) {
            admin.put(&path, &change(&path, body)).await.expect(201);
        }
        let token = enrol(&admin, "first").await;
        let listener: Arc<dyn Listener> = Arc::new(InProcess {
            router: in_process(&server.app),
            reads: orders::said(),
        });
        let machine =
            |number| Machine::new(format!("n{number}"), Mac([0x52, 0x54, 0, 0, 0, number]));
        let rack = Arc::new(Mutex::new(Rack::of((1..=nodes).map(machine))));
        let agent = Agent::start(Arc::clone(&listener), &token, Arc::clone(&rack), IMMORTAL)
            .await
            .unwrap();
        Self {
            server,
            admin,
            agent,
            rack,
            listener,
            token,
            fuel: Fuel::Forever,
        }
    }

    pub(crate) fn rack(&self) -> MutexGuard<'_, Rack> {
        self.rack.lock().expect("nobody panics with it")
    }

    /// Reads a machine, or changes the machine without the knowledge of the server and the agent.
    pub(crate) fn machine<T>(&self, name: &str, look: impl FnOnce(&mut Machine) -> T) -> T {
        look(
            self.rack()
                .machines
                .get_mut(name)
                .expect("every node has its machine"),
        )
    }

    /// Lets the next jobs of a kind fail, `times` times.
    pub(crate) fn fail(&self, name: &str, kind: &'static str, retryable: bool, times: usize) {
        let failure = Failure {
            code: "simulated".into(),
            message: format!("the simulated {kind} failed"),
            retryable,
        };
        self.machine(name, |machine| {
            machine
                .turns
                .entry(kind)
                .or_default()
                .extend(std::iter::repeat_n(Turn::Fails(failure), times));
        });
    }

    /// Sets the verdicts of the next gate runs.
    pub(crate) fn gates(&self, name: &str, verdicts: &[Verdict]) {
        self.machine(name, |machine| {
            machine
                .turns
                .entry("gates")
                .or_default()
                .extend(verdicts.iter().copied().map(Turn::Gates));
        });
    }

    pub(crate) async fn engine(&self) -> u64 {
        engine::run_until_idle(&self.server.app).await.unwrap()
    }

    pub(crate) fn advance(&self, seconds: i64) {
        self.server
            .app
            .clock
            .advance(SignedDuration::from_secs(seconds));
    }

    /// Expires leases, as the server's task does every two seconds.
    pub(crate) async fn expire_leases(&self) {
        leases::expire(&self.server.app).await.unwrap();
    }

    /// Starts another process of the agent, and returns the former process. The former process may
    /// continue as if alive.
    pub(crate) async fn replace_agent(&mut self, fuel: u32) -> Agent {
        let mut next = Agent::start(
            Arc::clone(&self.listener),
            &self.token,
            Arc::clone(&self.rack),
            fuel,
        )
        .await
        .unwrap();
        next.heard = Arc::clone(&self.agent.heard);
        std::mem::replace(&mut self.agent, next)
    }

    /// Restores the database from the backup. The machines, the agents and the server's files stay
    /// unchanged.
    pub(crate) async fn put_back(&mut self, backup: &Backup) {
        self.serve(backup.restore().await).await;
    }

    /// Starts another process of the server. The database, the machines and the files stay
    /// unchanged.
    pub(crate) async fn restart_server(&mut self) {
        self.serve(self.server.app.pool.clone()).await;
    }

    async fn serve(&mut self, pool: sqlx::PgPool) {
        let now = self.server.app.clock.now();
        let mut server = Server::on(pool, Clock::manual(now)).await;
        server.app.blobs = Arc::clone(&self.server.app.blobs);
        std::mem::swap(&mut server.data_dir, &mut self.server.data_dir);
        self.server = server;
        self.admin = self.server.with(self.admin.token.clone());
        self.reads(&orders::said());
    }

    /// Sets the members of orders that the agent reads from now on.
    pub(crate) fn reads(&mut self, said: &str) {
        self.listener = Arc::new(InProcess {
            router: in_process(&self.server.app),
            reads: said.to_owned(),
        });
        self.agent = self.agent.moved(Arc::clone(&self.listener));
    }

    /// The agents' listener on a socket. Returns the address.
    pub(crate) async fn listen(&self) -> std::net::SocketAddr {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = in_process(&self.server.app);
        tokio::spawn(async move { axum::serve(listener, router).await });
        address
    }

    /// The real agent's client, connected to the real listener on a socket. The client keeps marks
    /// on disk in `data_dir`.
    pub(crate) async fn real_client(
        &self,
        data_dir: &std::path::Path,
    ) -> muster_agent::work::client::server::Server {
        let mut server = self.client_at(self.listen().await);
        server.client = server.client.remembering(Marks::open(data_dir).unwrap());
        server
    }

    /// The real client of the same agent process, at an address of the listener.
    pub(crate) fn client_at(
        &self,
        address: std::net::SocketAddr,
    ) -> muster_agent::work::client::server::Server {
        let client = Client::on_loopback(
            &format!("http://{address}"),
            &Secret::new(self.token.clone()),
        )
        .unwrap();
        muster_agent::work::client::server::Server {
            client,
            epoch: self.agent.epoch,
        }
    }

    pub(crate) async fn undo(&self, name: &str) -> Reply {
        self.admin
            .send(
                reqwest::Method::POST,
                &format!("/v1/claims/c-{name}/undo"),
                Vec::new(),
            )
            .await
    }

    /// A second agent of the site.
    pub(crate) async fn second_agent(&self) -> Agent {
        let token = enrol(&self.admin, "second").await;
        Agent::start(
            Arc::clone(&self.listener),
            &token,
            Arc::clone(&self.rack),
            IMMORTAL,
        )
        .await
        .unwrap()
    }

    /// Runs the engine, then each ready job in turn. Returns true if any work was done.
    pub(crate) async fn pass(&mut self) -> bool {
        let turns = self.engine().await;
        let jobs = self.agent.lease(100, 0).await.unwrap();
        let moved = turns > 0 || !jobs.is_empty();
        for job in jobs {
            self.prepare(&job).await;
            match self.agent.work(&job).await {
                Ok(Outcome::Succeeded { .. }) => self.fuel = self.fuel.after_success(),
                Ok(Outcome::Failed { .. } | Outcome::Cancelled) => {}
                Err(Stop::Dead) => {
                    self.fuel = self.fuel.after_death();
                    self.replace_agent(self.fuel.amount()).await;
                    break;
                }
                Err(stop) => panic!("{}: {stop:?}", job.spec.kind()),
            }
        }
        moved
    }

    /// Sets the steps of the process for a job. With `Fuel::First`, the process dies only in the
    /// job's first attempt.
    async fn prepare(&mut self, job: &Job) {
        let amount = match self.fuel {
            Fuel::Forever => return,
            Fuel::OneMore(steps) => steps,
            Fuel::First(steps) if job.attempt == 1 => steps,
            Fuel::First(_) => IMMORTAL,
        };
        self.agent.refuel(amount);
    }

    /// Runs until every node rests and no work is due. Without ready work, the clock moves to the
    /// next due time.
    pub(crate) async fn settle(&mut self) {
        for _ in 0..PASSES {
            if !self.pass().await {
                if self.quiet().await {
                    return;
                }
                self.skip().await;
            }
        }
        panic!("it does not come to rest: {:#?}", self.why().await);
    }

    /// Runs until a node is in a state. The work of the state has not begun.
    pub(crate) async fn until(&mut self, name: &str, state: &str) {
        for _ in 0..PASSES {
            if self.state(name).await == state {
                return;
            }
            if !self.pass().await {
                self.skip().await;
            }
        }
        panic!("{name} does not get to {state}: {:#?}", self.why().await);
    }

    /// Runs until a step of a node is ready, and leases the job.
    pub(crate) async fn until_leased(&mut self, name: &str, kind: &str) -> Job {
        for _ in 0..PASSES {
            self.engine().await;
            let jobs = self.agent.lease(100, 0).await.unwrap();
            let idle = jobs.is_empty();
            let mut found = None;
            for job in jobs {
                match job.node_name == name && job.spec.kind() == kind {
                    true => found = Some(job),
                    false => drop(self.agent.work(&job).await.unwrap()),
                }
            }
            if let Some(job) = found {
                return job;
            }
            if idle {
                self.skip().await;
            }
        }
        panic!("{name} does not come to {kind}: {:#?}", self.why().await);
    }

    /// Returns true if every node rests. A node that is due and had no turn does not rest: a
    /// refused request may still lock the row.
    async fn quiet(&self) -> bool {
        let busy: i64 = sqlx::query_scalar(
            "SELECT count(*) FROM nodes n LEFT JOIN claims c ON c.node_id = n.id AND c.state <> 'released'
             WHERE n.state <> ALL($1) OR n.due_at <= $2 OR (n.state <> 'failed' AND c.state = 'releasing') OR (n.state = 'available' AND c.id IS NOT NULL)
                OR EXISTS (SELECT FROM jobs j WHERE j.node_id = n.id AND j.state IN ('queued', 'leased'))",
        )
        .bind(RESTING.map(str::to_owned).to_vec())
        .bind(jiff_sqlx::Timestamp::from(self.server.app.clock.now()))
        .fetch_one(&self.server.app.pool)
        .await
        .unwrap();
        busy == 0
    }

    /// Moves the clock to the next due time, by at least 1 s.
    async fn skip(&self) {
        let next: Option<jiff_sqlx::Timestamp> = sqlx::query_scalar(
            "SELECT min(at) FROM (SELECT due_at AS at FROM nodes WHERE due_at IS NOT NULL
                                  UNION ALL SELECT not_before FROM jobs WHERE state = 'queued') AS next",
        )
        .fetch_one(&self.server.app.pool)
        .await
        .unwrap();
        let clock = &self.server.app.clock;
        let ahead = next
            .map(|at| at.to_jiff().duration_since(clock.now()))
            .unwrap_or_default();
        clock.advance(ahead.max(SignedDuration::from_secs(1)));
    }

    async fn why(&self) -> Vec<(String, String, Option<String>)> {
        sqlx::query_as(
            "SELECT name, state, waiting_for FROM nodes WHERE state <> 'available' ORDER BY name",
        )
        .fetch_all(&self.server.app.pool)
        .await
        .unwrap()
    }

    pub(crate) async fn state(&self, name: &str) -> String {
        self.value(name, "state").await.unwrap()
    }

    /// The value of a node's column as text.
    pub(crate) async fn value(&self, name: &str, column: &str) -> Option<String> {
        let query =
            sqlx::AssertSqlSafe(format!("SELECT {column}::text FROM nodes WHERE name = $1"));
        sqlx::query_scalar(query)
            .bind(name)
            .fetch_one(&self.server.app.pool)
            .await
            .unwrap()
    }

    /// Claims a node for the pool. The claim's name is `c-` and the node's name.
    pub(crate) async fn claim(&self, name: &str) -> Reply {
        let body = json!({ "name": format!("c-{name}"), "spec": { "pool": "gpu", "node": name } });
        self.admin.post("/v1/claims", &body).await
    }

    pub(crate) async fn release(&self, name: &str) -> Reply {
        self.admin
            .expecting(1)
            .delete(&format!("/v1/claims/c-{name}"))
            .await
    }

    /// Requests another node for the claim named after the given node.
    pub(crate) async fn replace(&self, name: &str) -> Reply {
        let path = format!("/v1/claims/c-{name}");
        self.expecting_present(&path)
            .await
            .post(&format!("{path}/actions/replace"), &json!({}))
            .await
    }

    pub(crate) async fn ask(&self, name: &str, action: &str) -> Reply {
        let path = format!("/v1/nodes/{name}");
        self.expecting_present(&path)
            .await
            .post(
                &format!("{path}/actions/{action}"),
                &json!({ "reason": "a test" }),
            )
            .await
    }

    /// The administrator, expecting the present generation of the object at the path.
    async fn expecting_present(&self, path: &str) -> Caller {
        let present = self.admin.get(path).await.body["generation"].as_i64();
        self.admin.expecting(present.unwrap_or(1))
    }

    /// Sets or clears a node's protection.
    pub(crate) async fn protect(&self, name: &str, protected: bool) {
        let patch = json!({ "spec": { "protected": protected } });
        self.admin
            .patch(&format!("/v1/nodes/{name}"), &patch)
            .await
            .expect(200);
    }

    /// Cancels the operation of a reply.
    pub(crate) async fn cancel(&self, reply: &Reply) -> Reply {
        let id = reply.body["status"]["operation"]
            .as_str()
            .or(reply.body["id"].as_str())
            .unwrap();
        self.admin
            .post(&format!("/v1/operations/{id}/cancel"), &json!({}))
            .await
    }

    /// The state of the operation of a reply.
    pub(crate) async fn operation(&self, reply: &Reply) -> String {
        let id = reply.body["status"]["operation"]
            .as_str()
            .or(reply.body["id"].as_str())
            .unwrap()
            .to_owned();
        let operation = self
            .admin
            .get(&format!("/v1/operations/{id}"))
            .await
            .expect(200);
        operation.body["state"].as_str().unwrap().to_owned()
    }

    /// The states of a node's history, in order.
    pub(crate) async fn states(&self, name: &str) -> Vec<String> {
        let query = "SELECT e.detail ->> 'to' FROM events e JOIN nodes n ON n.id = e.node_id
                     WHERE n.name = $1 AND e.kind = 'node.advanced' ORDER BY e.seq";
        sqlx::query_scalar(query)
            .bind(name)
            .fetch_all(&self.server.app.pool)
            .await
            .unwrap()
    }

    /// All events of a node in order: the kind, and the state, step, act or wish.
    pub(crate) async fn history(&self, name: &str) -> Vec<String> {
        let query = "SELECT e.kind || COALESCE(' ' || COALESCE(e.detail ->> 'to', e.detail ->> 'step', e.detail ->> 'act', e.detail ->> 'wish'), '')
                     FROM events e JOIN nodes n ON n.id = e.node_id WHERE n.name = $1 ORDER BY e.seq";
        sqlx::query_scalar(query)
            .bind(name)
            .fetch_all(&self.server.app.pool)
            .await
            .unwrap()
    }
}

impl Fuel {
    fn amount(self) -> u32 {
        match self {
            Self::Forever | Self::First(_) => IMMORTAL,
            Self::OneMore(steps) => steps,
        }
    }

    fn after_death(self) -> Self {
        match self {
            Self::OneMore(steps) => Self::OneMore(steps + 1),
            other => other,
        }
    }

    fn after_success(self) -> Self {
        match self {
            Self::OneMore(_) => Self::OneMore(1),
            other => other,
        }
    }
}

async fn enrol(admin: &Caller, name: &str) -> String {
    let enrolled = admin
        .post("/v1/sites/lab/agents", &json!({ "name": name }))
        .await
        .expect(201);
    enrolled.body["token"].as_str().unwrap().to_owned()
}

/// The documents of a fleet, complete enough for the work of the tests.
fn documents(nodes: u8) -> Vec<(String, Value)> {
    let live = json!({ "kernel": fleet::digest("vmlinuz"), "initrd": fleet::digest("initrd") });
    let mut stack = fleet::stack();
    stack["spec"]["bundle"] = json!(fleet::digest("bundle"));
    stack["spec"]["kernel_args"] = json!(["nouveau.modeset=0"]);
    let mut suite = fleet::suite();
    suite["spec"]["gates"][0]["after_reboot"] = json!(true);
    let mut site = fleet::site();
    site["spec"]["live"] = live;
    let mut documents = vec![
        ("/v1/sites/lab".to_owned(), site),
        ("/v1/racks/r1".to_owned(), fleet::rack()),
        ("/v1/subnets/prov".to_owned(), fleet::subnet()),
        ("/v1/hardware_profiles/virtual".to_owned(), fleet::profile()),
        (
            "/v1/credentials/bmc".to_owned(),
            json!({ "spec": { "purpose": "bmc", "user": "root", "secret": "calvin" } }),
        ),
        ("/v1/images/debian-12".to_owned(), fleet::image()),
        ("/v1/stacks/base".to_owned(), stack),
        ("/v1/clusters/slurm".to_owned(), fleet::cluster()),
        ("/v1/suites/smoke".to_owned(), suite),
        ("/v1/pools/gpu".to_owned(), fleet::pool()),
    ];
    documents
        .extend((1..=nodes).map(|number| (format!("/v1/nodes/n{number}"), fleet::node(number))));
    documents
}
