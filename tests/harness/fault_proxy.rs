//! A TCP proxy in front of a PostgreSQL server, for faults of the network. It reads the protocol, so TLS has to be off.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use super::port::free_port;

/// What the proxy does to connections, open ones too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It forwards everything.
    None,
    /// It forwards in both directions, this much later.
    Delay(Duration),
    /// It forwards the next request whole and closes the client's connection at once. Then there is no fault.
    CutAfterRequest,
    /// It forwards requests and discards answers.
    DropAnswers,
    /// It refuses connections. Open ones go on.
    Refuse,
}

/// A proxy on loopback. Dropping it closes all connections.
pub(crate) struct FaultProxy {
    state: Arc<ProxyState>,
}

struct ProxyState {
    address: SocketAddr,
    server: SocketAddr,
    inner: Mutex<Inner>,
    changed: Condvar,
}

struct Inner {
    fault: Fault,
    is_listening: bool,
    connections: Vec<[TcpStream; 2]>,
}

impl FaultProxy {
    /// Starts a proxy in front of the server on this port.
    pub(crate) fn start(port: u16) -> Self {
        let state = Arc::new(ProxyState {
            address: ([127, 0, 0, 1], free_port()).into(),
            server: ([127, 0, 0, 1], port).into(),
            inner: Mutex::new(Inner {
                fault: Fault::None,
                is_listening: false,
                connections: Vec::new(),
            }),
            changed: Condvar::new(),
        });
        let listener = Arc::clone(&state);
        thread::spawn(move || {
            loop {
                listener.listen();
            }
        });
        let proxy = Self { state };
        proxy.set(Fault::None);
        proxy
    }

    /// The address for clients, for [`super::postgres::Database::url_at`].
    pub(crate) fn address(&self) -> String {
        self.state.address.to_string()
    }

    /// Changes the fault. It is in effect afterwards.
    pub(crate) fn set(&self, fault: Fault) {
        let mut inner = self.state.lock();
        inner.fault = fault;
        if fault == Fault::Refuse && inner.is_listening {
            // Wakes the listener, which closes its socket.
            drop(TcpStream::connect(self.state.address));
        }
        self.state.changed.notify_all();
        let is_pending = |inner: &mut Inner| inner.is_listening == (fault == Fault::Refuse);
        drop(self.state.changed.wait_while(inner, is_pending).unwrap());
    }

    /// Closes all connections.
    pub(crate) fn cut(&self) {
        for stream in self.state.lock().connections.drain(..).flatten() {
            // The other side may have closed it.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.set(Fault::Refuse);
        self.cut();
    }
}

impl ProxyState {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap()
    }

    /// Accepts connections until they are to be refused, and waits until they are to be accepted again.
    fn listen(self: &Arc<Self>) {
        let listener = TcpListener::bind(self.address).unwrap();
        self.set_listening(true);
        for client in listener.incoming() {
            if self.lock().fault == Fault::Refuse {
                break;
            }
            // A server that does not run refuses: so does the proxy, as well as it can.
            if let Ok(server) = TcpStream::connect(self.server) {
                self.relay(client.unwrap(), server);
            }
        }
        drop(listener);
        self.set_listening(false);
        let is_refusing = |inner: &mut Inner| inner.fault == Fault::Refuse;
        drop(self.changed.wait_while(self.lock(), is_refusing).unwrap());
    }

    fn set_listening(&self, is_listening: bool) {
        self.lock().is_listening = is_listening;
        self.changed.notify_all();
    }

    /// Starts two threads, one for each direction.
    fn relay(self: &Arc<Self>, client: TcpStream, server: TcpStream) {
        let copy = |stream: &TcpStream| stream.try_clone().unwrap();
        client.set_nodelay(true).unwrap();
        server.set_nodelay(true).unwrap();
        self.lock().connections.push([copy(&client), copy(&server)]);
        let (requests, answers) = (Arc::clone(self), Arc::clone(self));
        let (from_client, to_server) = (copy(&client), copy(&server));
        thread::spawn(move || requests.forward_requests(from_client, to_server));
        thread::spawn(move || answers.forward_answers(server, client));
    }

    fn forward_requests(&self, mut client: TcpStream, mut server: TcpStream) {
        let mut messages = Messages::default();
        let mut buffer = [0; 16 * 1024];
        while let Ok(count) = client.read(&mut buffer)
            && count > 0
        {
            self.delay();
            let bytes = &buffer[..count];
            let is_cut = messages.ends_request(bytes) && self.take_cut();
            if is_cut {
                // Before the server has the whole request, so that no answer comes.
                let _ = client.shutdown(Shutdown::Both);
            }
            if server.write_all(bytes).is_err() {
                break;
            }
            if is_cut {
                // The server's connection stays open until its answer comes, so that it finishes the request.
                return;
            }
        }
        let _ = server.shutdown(Shutdown::Both);
    }

    /// Whether this request is the one to cut after. Then there is no fault any more.
    fn take_cut(&self) -> bool {
        let mut inner = self.lock();
        let is_cut = inner.fault == Fault::CutAfterRequest;
        if is_cut {
            inner.fault = Fault::None;
        }
        is_cut
    }

    fn forward_answers(&self, mut server: TcpStream, mut client: TcpStream) {
        let mut buffer = [0; 16 * 1024];
        while let Ok(count) = server.read(&mut buffer)
            && count > 0
        {
            self.delay();
            let is_dropped = self.lock().fault == Fault::DropAnswers;
            if !is_dropped && client.write_all(&buffer[..count]).is_err() {
                break;
            }
        }
        for stream in [client, server] {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    fn delay(&self) {
        let fault = self.lock().fault;
        if let Fault::Delay(time) = fault {
            thread::sleep(time);
        }
    }
}

/// Where a client's stream of messages stands: each is a type, four bytes of length, and content.
#[derive(Default)]
struct Messages {
    /// Messages up to the start have no type.
    is_started: bool,
    head: Vec<u8>,
    /// What the message at hand still lacks.
    rest: usize,
}

impl Messages {
    /// Reads on, and tells whether these bytes contain the end of a request: of a Query or Sync message.
    fn ends_request(&mut self, mut bytes: &[u8]) -> bool {
        let mut is_end = false;
        while !bytes.is_empty() {
            let head_length = if self.is_started { 5 } else { 4 };
            if self.head.len() < head_length {
                self.head.push(bytes[0]);
                bytes = &bytes[1..];
                if let Some(length) = self.head.get(head_length - 4..head_length) {
                    self.rest = u32::from_be_bytes(length.try_into().unwrap()) as usize - 4;
                }
            } else {
                let count = self.rest.min(bytes.len());
                self.rest -= count;
                bytes = &bytes[count..];
            }
            if self.head.len() == head_length && self.rest == 0 {
                is_end |= self.is_started && matches!(self.head[0], b'Q' | b'S');
                // A request for encryption, of eight bytes, comes before the start.
                self.is_started |= self.head != [0, 0, 0, 8];
                self.head.clear();
            }
        }
        is_end
    }
}
