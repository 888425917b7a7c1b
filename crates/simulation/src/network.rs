//! A network in which messages take their time, are lost, held up, or come twice, as the seed has it.
//!
//! A connection is one to an incarnation of a node: when that has ended, or the connection breaks, calls that are
//! under way fail, though what they ask for may have been done, or may be done yet.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nasd_client::{Connector, Host, Network, TransportError};
use nasd_transport::{
    Channel, ChannelError, ClientOptions, Execution, InFlight, OpaqueAuth, OutgoingCall, Reply,
    ResultShape,
};
use nasd_types::Timestamp;

use crate::random::Random;
use crate::serving::{Answered, Request, Served};
use crate::turns::{ProcessId, TaskId, Time, lock};

/// How late a request may come that comes twice.
const LATEST: Duration = Duration::from_secs(15);

/// What every clock shows at the beginning.
pub const EPOCH: Timestamp = Timestamp(1_700_000_000_000_000_000);

/// Something that messages come from or go to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeId(pub usize);

/// What goes wrong with messages, each once in so many; 0 is never.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Weather {
    /// The connection breaks before a request has come.
    pub lost_requests: u64,
    /// It breaks before the reply has.
    pub lost_replies: u64,
    /// A request comes, or a reply, after up to a second.
    pub late: u64,
    /// A request comes once more, up to fifteen seconds later.
    pub twice: u64,
}

/// How a node answers.
#[derive(Clone)]
pub enum Serving {
    /// It is not there, and its host says so.
    Refuses,
    /// Nor is its host.
    Silent,
    /// At once.
    AtOnce(Arc<dyn Served>),
    /// In a task of its process, as it asks others.
    InTasks(ProcessId, Arc<dyn Served>),
}

struct Node {
    serving: Serving,
    incarnation: u64,
    /// How much longer everything takes.
    delay: Duration,
}

/// All of it.
pub struct Cables {
    /// The time that passes.
    pub time: Arc<Time>,
    inner: Mutex<Inner>,
}

struct Inner {
    nodes: Vec<Node>,
    /// Pairs between which nothing comes through, the lower node first.
    cut: BTreeSet<(NodeId, NodeId)>,
    /// What was sent meanwhile, which some of it comes through later.
    held: BTreeMap<(NodeId, NodeId), Vec<Message>>,
    calls: BTreeMap<u64, Pending>,
    numbers: u64,
    weather: Weather,
    /// Requests from there and to there don't come twice, nor any more over connections that were given up.
    orderly: BTreeSet<NodeId>,
    random: Random,
}

type Message = Box<dyn FnOnce(&Arc<Cables>) + Send>;

/// A call that somebody may wait for.
struct Pending {
    channel: Arc<Line>,
    outcome: Option<Result<Answered, ChannelError>>,
    waiter: Option<TaskId>,
}

/// A connection.
struct Line {
    from: NodeId,
    to: NodeId,
    incarnation: u64,
    is_open: AtomicBool,
}

impl std::fmt::Debug for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} -> {}", self.from.0, self.to.0)
    }
}

fn pair(one: NodeId, other: NodeId) -> (NodeId, NodeId) {
    (one.min(other), one.max(other))
}

fn address_of(node: NodeId) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 1000 + node.0 as u16))
}

fn broken(node: NodeId, execution: Execution) -> ChannelError {
    let reason = nasd_transport::BreakReason::Io(io::ErrorKind::ConnectionReset.into());
    ChannelError::Broken { address: address_of(node), reason: Arc::new(reason), execution }
}

fn unreachable(node: NodeId, kind: io::ErrorKind) -> ChannelError {
    let source = Arc::new(io::Error::from(kind));
    ChannelError::Connect { address: address_of(node), source }
}

impl Cables {
    /// A network without nodes.
    pub fn new(time: &Arc<Time>, random: Random) -> Arc<Cables> {
        let inner = Inner {
            nodes: Vec::new(),
            cut: BTreeSet::new(),
            held: BTreeMap::new(),
            calls: BTreeMap::new(),
            numbers: 0,
            weather: Weather::default(),
            orderly: BTreeSet::new(),
            random,
        };
        Arc::new(Cables { time: Arc::clone(time), inner: Mutex::new(inner) })
    }

    /// One more node.
    pub fn node(&self) -> NodeId {
        let mut inner = lock(&self.inner);
        let node = Node { serving: Serving::Refuses, incarnation: 0, delay: Duration::ZERO };
        inner.nodes.push(node);
        NodeId(inner.nodes.len() - 1)
    }

    /// From now on messages fare so.
    pub fn set_weather(&self, weather: Weather) {
        lock(&self.inner).weather = weather;
    }

    /// Requests of a node and to it come once, and not after their connection was given up.
    pub fn set_orderly(&self, node: NodeId) {
        lock(&self.inner).orderly.insert(node);
    }

    /// From now on a node answers so. Connections to what it was before break: at once, unless its host is gone too.
    pub fn set_serving(self: &Arc<Self>, node: NodeId, serving: Serving) {
        let mut inner = lock(&self.inner);
        let known = &mut inner.nodes[node.0];
        known.incarnation += 1;
        let is_silent = matches!(serving, Serving::Silent);
        known.serving = serving;
        if is_silent {
            return;
        }
        let incarnation = known.incarnation;
        let lines = inner.calls.values().map(|call| &call.channel);
        let old = lines.filter(|line| line.to == node && line.incarnation < incarnation);
        let old: Vec<Arc<Line>> = old.cloned().collect();
        drop(inner);
        old.iter().for_each(|line| self.break_off(line));
    }

    /// The run is over: nobody answers any more, and nothing is held that would come through. Whoever is served holds
    /// on to the network, too, and would never go.
    pub fn take_down(&self) {
        let mut inner = lock(&self.inner);
        let servings: Vec<Serving> = inner
            .nodes
            .iter_mut()
            .map(|node| std::mem::replace(&mut node.serving, Serving::Refuses))
            .collect();
        let held = std::mem::take(&mut inner.held);
        drop(inner);
        drop((servings, held));
    }

    /// Everything that a node answers takes so much longer.
    pub fn set_delay(&self, node: NodeId, delay: Duration) {
        lock(&self.inner).nodes[node.0].delay = delay;
    }

    /// Nothing comes through between two nodes any more; or everything does again, and some of what was sent
    /// meanwhile.
    pub fn set_cut(self: &Arc<Self>, one: NodeId, other: NodeId, is_cut: bool) {
        let mut inner = lock(&self.inner);
        let pair = pair(one, other);
        if is_cut {
            inner.cut.insert(pair);
            return;
        }
        inner.cut.remove(&pair);
        for message in inner.held.remove(&pair).unwrap_or_default() {
            if inner.random.one_in(2) {
                continue;
            }
            let wait = inner.latency();
            let cables = Arc::clone(self);
            self.time.after(wait, move |_| message(&cables));
        }
    }

    /// What connects a process on a node with the others. `skew` is by how many nanoseconds its host's time of day is
    /// ahead.
    pub fn host(
        self: &Arc<Self>,
        node: NodeId,
        process: ProcessId,
        skew: u64,
    ) -> Arc<SimulatedHost> {
        let random = Mutex::new(lock(&self.inner).random.fork());
        let (cables, afterlife) = (Arc::clone(self), AtomicU64::new(0));
        Arc::new(SimulatedHost { cables, node, process, skew, afterlife, random })
    }

    /// The address of a node.
    pub fn address(node: NodeId) -> String {
        format!("node:{}", node.0)
    }

    fn post(self: &Arc<Self>, from: NodeId, to: NodeId, wait: Duration, message: Message) {
        let mut inner = lock(&self.inner);
        let pair = pair(from, to);
        if inner.cut.contains(&pair) {
            inner.held.entry(pair).or_default().push(message);
            return;
        }
        drop(inner);
        let cables = Arc::clone(self);
        self.time.after(wait, move |_| {
            let is_cut = lock(&cables.inner).cut.contains(&pair);
            match is_cut {
                true => lock(&cables.inner).held.entry(pair).or_default().push(message),
                false => message(&cables),
            }
        });
    }

    /// Sends a request over a connection; by which number it is known.
    fn send(self: &Arc<Self>, line: &Arc<Line>, request: Request) -> u64 {
        let mut inner = lock(&self.inner);
        inner.numbers += 1;
        let number = inner.numbers;
        let pending = Pending { channel: Arc::clone(line), outcome: None, waiter: None };
        inner.calls.insert(number, pending);
        let weather = inner.weather;
        let wait = inner.wait() + inner.nodes[line.to.0].delay / 2;
        let is_lost = inner.random.one_in(weather.lost_requests);
        let again = inner.random.one_in(weather.twice) && !inner.is_orderly(line);
        let later = inner.random.between(Duration::ZERO, LATEST);
        drop(inner);
        if is_lost {
            self.time.tell(|| format!("{:?} loses {}", line, request.procedure()));
            self.break_off(line);
            return number;
        }
        let request = Arc::new(request);
        let message = |number: Option<u64>| -> Message {
            let (line, request) = (Arc::clone(line), Arc::clone(&request));
            Box::new(move |cables| cables.arrive(number, &line, &request))
        };
        if again {
            self.post(line.from, line.to, later, message(None));
        }
        self.post(line.from, line.to, wait, message(Some(number)));
        number
    }

    /// A request has come; it is that of a call, or one that was sent before.
    fn arrive(self: &Arc<Self>, number: Option<u64>, line: &Arc<Line>, request: &Arc<Request>) {
        let inner = lock(&self.inner);
        let node = &inner.nodes[line.to.0];
        let is_same = node.incarnation == line.incarnation;
        let serving = node.serving.clone();
        let is_orderly = inner.is_orderly(line);
        let is_given_up = is_orderly && !line.is_open.load(Ordering::Relaxed);
        drop(inner);
        if is_given_up {
            return;
        }
        self.time.note(line.to.0 as u64);
        match serving {
            // The host knows nothing of such a connection.
            _ if !is_same => self.break_off(line),
            Serving::Refuses | Serving::Silent => {}
            Serving::AtOnce(served) => {
                let answer = served.serve(request);
                self.reply(number, line, request, answer);
            }
            Serving::InTasks(process, served) => {
                let (cables, line, request) =
                    (Arc::clone(self), Arc::clone(line), Arc::clone(request));
                self.time.spawn(process, move || {
                    let answer = served.serve(&request);
                    cables.reply(number, &line, &request, answer);
                });
            }
        }
    }

    fn reply(
        self: &Arc<Self>,
        number: Option<u64>,
        line: &Arc<Line>,
        request: &Request,
        answer: Option<Answered>,
    ) {
        let is_of_the_manager =
            matches!(lock(&self.inner).nodes[line.from.0].serving, Serving::InTasks(..));
        let is_worth_telling = !is_of_the_manager || !request.procedure().starts_with("read");
        self.time.tell_if(is_worth_telling, || {
            let status = answer.as_ref().and_then(|answered| answered.results.first_chunk());
            let status = status.map_or(u32::MAX, |word| u32::from_be_bytes(*word));
            let again = if number.is_none() { ", which came twice" } else { "" };
            format!("{line:?} {} is answered with {status}{again}", request.procedure())
        });
        let Some(number) = number else { return };
        let mut inner = lock(&self.inner);
        if inner.nodes[line.to.0].incarnation != line.incarnation {
            return;
        }
        let weather = inner.weather;
        let is_lost = inner.random.one_in(weather.lost_replies);
        let wait = inner.wait() + inner.nodes[line.to.0].delay / 2;
        drop(inner);
        match answer {
            Some(answered) if !is_lost => {
                let message: Message = Box::new(move |cables| cables.end(number, Ok(answered)));
                self.post(line.to, line.from, wait, message);
            }
            _ => self.break_off(line),
        }
    }

    /// A connection breaks: calls that are under way fail, and there are no more.
    fn break_off(self: &Arc<Self>, line: &Arc<Line>) {
        line.is_open.store(false, Ordering::Relaxed);
        let inner = lock(&self.inner);
        let own = inner.calls.iter().filter(|(_, call)| Arc::ptr_eq(&call.channel, line));
        let own: Vec<u64> = own.map(|(number, _)| *number).collect();
        drop(inner);
        for number in own {
            self.end_later(number, Err(broken(line.to, Execution::Possible)));
        }
    }

    fn end_later(self: &Arc<Self>, number: u64, outcome: Result<Answered, ChannelError>) {
        let wait = lock(&self.inner).latency();
        let cables = Arc::clone(self);
        self.time.after(wait, move |_| cables.end(number, outcome));
    }

    /// A call ends, unless it has.
    fn end(&self, number: u64, outcome: Result<Answered, ChannelError>) {
        let mut inner = lock(&self.inner);
        let Some(call) = inner.calls.get_mut(&number) else { return };
        if call.outcome.is_none() {
            call.outcome = Some(outcome);
            if let Some(waiter) = call.waiter.take() {
                self.time.wake(waiter);
            }
        }
    }

    /// Waits for a call.
    fn wait_for(
        self: &Arc<Self>,
        number: u64,
        line: &Arc<Line>,
        timeout: Duration,
    ) -> Result<Answered, ChannelError> {
        let until = self.time.now() + timeout;
        loop {
            let mut inner = lock(&self.inner);
            let Some(call) = inner.calls.get_mut(&number) else {
                return Err(broken(line.to, Execution::Possible));
            };
            if let Some(outcome) = call.outcome.take() {
                inner.calls.remove(&number);
                return outcome;
            }
            if self.time.now() >= until || std::thread::panicking() {
                inner.calls.remove(&number);
                drop(inner);
                self.break_off(line);
                return Err(ChannelError::TimedOut {
                    address: address_of(line.to),
                    after: timeout,
                    execution: Execution::Possible,
                });
            }
            call.waiter = Some(Time::current());
            drop(inner);
            self.time.wait(Some(until));
        }
    }
}

impl Inner {
    fn is_orderly(&self, line: &Line) -> bool {
        self.orderly.contains(&line.from) || self.orderly.contains(&line.to)
    }

    /// How long a message takes when all is well.
    fn latency(&mut self) -> Duration {
        let most = if self.random.one_in(8) { 3000 } else { 200 };
        Duration::from_micros(20 + self.random.below(most))
    }

    /// How long it takes.
    fn wait(&mut self) -> Duration {
        let late = self.weather.late;
        let latency = self.latency();
        match self.random.one_in(late) {
            true => latency + self.random.between(Duration::ZERO, Duration::from_secs(1)),
            false => latency,
        }
    }
}

/// A process's end of the network.
pub struct SimulatedHost {
    cables: Arc<Cables>,
    node: NodeId,
    process: ProcessId,
    skew: u64,
    /// The time that has passed for it since it was dead.
    afterlife: AtomicU64,
    random: Mutex<Random>,
}

impl std::fmt::Debug for SimulatedHost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SimulatedHost({})", self.node.0)
    }
}

/// [`SimulatedHost`] as clients reach others from it.
#[derive(Clone, Debug)]
pub struct SimulatedNetwork(pub Arc<SimulatedHost>);

impl Network for SimulatedNetwork {
    fn connector(&self, address: &str, _options: &ClientOptions) -> Arc<dyn Connector> {
        let to = address.strip_prefix("node:").and_then(|number| number.parse().ok());
        let (address, host) = (address.to_owned(), Arc::clone(&self.0));
        Arc::new(Plug { to: to.map(NodeId), address, host })
    }

    fn host(&self) -> Arc<dyn Host> {
        Arc::clone(&self.0) as Arc<dyn Host>
    }
}

impl Host for SimulatedHost {
    fn elapsed(&self) -> Duration {
        // Not the same at each host.
        let offset = Duration::from_secs(1 + self.node.0 as u64);
        self.cables.time.now()
            + offset
            + Duration::from_nanos(self.afterlife.load(Ordering::Relaxed))
    }

    fn wall_clock(&self) -> Timestamp {
        EPOCH.plus_ns(self.skew + self.cables.time.now().as_nanos() as u64)
    }

    fn sleep(&self, duration: Duration) {
        let time = &self.cables.time;
        let is_outside = std::thread::panicking() || Time::current() == TaskId::OUTSIDE;
        if is_outside && !time.is_alive(self.process) {
            // Whoever still holds something of it is not kept by it.
            self.afterlife.fetch_add(duration.as_nanos() as u64, Ordering::Relaxed);
        } else {
            time.sleep(duration);
        }
    }

    fn random(&self) -> u64 {
        lock(&self.random).draw()
    }

    /// Threads wait for each other as they do elsewhere.
    fn takes_turns(&self) -> bool {
        !self.cables.time.has_threads()
    }
}

/// Makes connections to a node.
struct Plug {
    to: Option<NodeId>,
    address: String,
    host: Arc<SimulatedHost>,
}

impl Connector for Plug {
    fn connect(&self, timeout: Duration) -> Result<Arc<dyn Channel>, TransportError> {
        let cables = &self.host.cables;
        let unknown = || TransportError::Resolve {
            address: self.address.clone(),
            why: "there is no such node".to_owned(),
        };
        let (from, to) = (self.host.node, self.to.ok_or_else(unknown)?);
        if std::thread::panicking() || !cables.time.is_alive(self.host.process) {
            return Err(unreachable(to, io::ErrorKind::NetworkDown).into());
        }
        let wait = lock(&cables.inner).latency() * 2;
        cables.time.sleep(wait.min(timeout));
        let inner = lock(&cables.inner);
        let node = &inner.nodes[to.0];
        let is_silent = matches!(node.serving, Serving::Silent);
        if is_silent || inner.cut.contains(&pair(from, to)) {
            drop(inner);
            cables.time.sleep(timeout.saturating_sub(wait));
            return Err(unreachable(to, io::ErrorKind::TimedOut).into());
        }
        if matches!(node.serving, Serving::Refuses) {
            return Err(unreachable(to, io::ErrorKind::ConnectionRefused).into());
        }
        let incarnation = node.incarnation;
        drop(inner);
        let line = Arc::new(Line { from, to, incarnation, is_open: AtomicBool::new(true) });
        Ok(Arc::new(SimulatedChannel { host: Arc::clone(&self.host), line }))
    }

    fn address(&self) -> &str {
        &self.address
    }
}

/// A connection, for who has made it.
struct SimulatedChannel {
    host: Arc<SimulatedHost>,
    line: Arc<Line>,
}

impl SimulatedChannel {
    fn send(&self, call: &OutgoingCall<'_>) -> Result<u64, ChannelError> {
        let cables = &self.host.cables;
        cables.time.expect_own_thread();
        let is_alive = cables.time.is_alive(self.host.process) && !std::thread::panicking();
        if !is_alive || !self.is_open() {
            return Err(broken(self.line.to, Execution::Never));
        }
        Ok(cables.send(&self.line, Request::of(call)))
    }
}

impl Channel for SimulatedChannel {
    fn call(&self, call: &OutgoingCall<'_>, into: &mut [u8]) -> Result<Reply, ChannelError> {
        let number = self.send(call)?;
        let answered = self.host.cables.wait_for(number, &self.line, call.timeout)?;
        received(answered, call.results, into, self.line.to)
    }

    fn begin(
        self: Arc<Self>,
        call: &OutgoingCall<'_>,
        into: Vec<u8>,
    ) -> Result<InFlight, (ChannelError, Vec<u8>)> {
        let number = match self.send(call) {
            Ok(number) => number,
            Err(error) => return Err((error, into)),
        };
        let (timeout, shape) = (call.timeout, call.results);
        let wait = move |into: &mut Vec<u8>| {
            let answered = self.host.cables.wait_for(number, &self.line, timeout)?;
            received(answered, shape, into, self.line.to)
        };
        Ok(InFlight::awaited(Box::new(wait), into))
    }

    fn is_open(&self) -> bool {
        self.line.is_open.load(Ordering::Relaxed)
    }

    fn close(&self) {
        self.host.cables.time.expect_own_thread();
        self.host.cables.break_off(&self.line);
    }
}

/// A reply, with its data where they are wanted.
fn received(
    answered: Answered,
    shape: ResultShape,
    into: &mut [u8],
    from: NodeId,
) -> Result<Reply, ChannelError> {
    let Answered { verifier, mut results, data } = answered;
    let verifier = OpaqueAuth { flavor: verifier.0, body: &verifier.1 };
    if shape == ResultShape::Plain {
        results.extend_from_slice(&data);
        results.resize(nasd_xdr::xdr_padded(results.len()), 0);
        return Ok(Reply::new(verifier, &results, 0));
    }
    let Some(place) = into.get_mut(..data.len()) else {
        return Err(broken(from, Execution::Possible));
    };
    place.copy_from_slice(&data);
    Ok(Reply::new(verifier, &results, data.len()))
}
