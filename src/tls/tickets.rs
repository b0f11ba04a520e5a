//! What outlives a snapshot: the keys of tickets, and sessions to upstreams.
//!
//! All workers share a listener's ticket keys, so that any of them takes what another gave out.
//! rustls rotates them every 6 hours and takes a ticket for 12 at most.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use rustls::crypto::aws_lc_rs::Ticketer;
use rustls::server::ProducesTickets;

use super::client::ClientTls;

/// Keeps them for as long as a snapshot holds them; beside the ids.
#[derive(Debug, Default)]
pub struct Kept {
    /// By the listener's name, and by what its clients must prove: a ticket must not carry a client
    /// past a policy that has changed.
    tickets: HashMap<(Box<str>, [u8; 32]), Weak<dyn ProducesTickets>>,
    /// By everything that went into them.
    clients: HashMap<[u8; 32], Weak<ClientTls>>,
}

impl Kept {
    /// The ticket keys of a listener whose clients must prove what `policy` stands for.
    ///
    /// # Errors
    /// There are no random numbers.
    pub(super) fn tickets(
        &mut self,
        listener: &str,
        policy: [u8; 32],
    ) -> Result<Arc<dyn ProducesTickets>, rustls::Error> {
        self.tickets.retain(|_, keys| keys.strong_count() > 0);
        let key = (Box::from(listener), policy);
        if let Some(keys) = self.tickets.get(&key).and_then(Weak::upgrade) {
            return Ok(keys);
        }
        let keys = Ticketer::new()?;
        self.tickets.insert(key, Arc::downgrade(&keys));
        Ok(keys)
    }

    /// The client side that was made of the same settings and files before, with its sessions; else
    /// the one that `make` makes.
    pub(super) fn client<E>(
        &mut self,
        made_of: [u8; 32],
        make: impl FnOnce() -> Result<ClientTls, E>,
    ) -> Result<Arc<ClientTls>, E> {
        self.clients.retain(|_, client| client.strong_count() > 0);
        if let Some(client) = self.clients.get(&made_of).and_then(Weak::upgrade) {
            return Ok(client);
        }
        let client = Arc::new(make()?);
        self.clients.insert(made_of, Arc::downgrade(&client));
        Ok(client)
    }
}
