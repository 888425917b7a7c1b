//! A set of clients, in little memory: most files have one holder, some have thousands.

use super::rules::Client;

/// A set of clients.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Clients {
    #[default]
    None,
    One(Client),
    /// Two or more, in order.
    #[expect(clippy::box_collection, reason = "a set is as short as one client then")]
    Many(Box<Vec<Client>>),
}

impl Clients {
    pub(crate) fn len(&self) -> usize {
        self.as_slice().len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Client> {
        self.as_slice().iter().copied()
    }

    pub(crate) fn has(&self, client: Client) -> bool {
        self.as_slice().binary_search(&client).is_ok()
    }

    fn as_slice(&self) -> &[Client] {
        match self {
            Clients::None => &[],
            Clients::One(client) => std::slice::from_ref(client),
            Clients::Many(clients) => clients,
        }
    }

    /// Whether it was not there yet.
    pub(crate) fn add(&mut self, client: Client) -> bool {
        match self {
            Clients::None => *self = Clients::One(client),
            Clients::One(other) if *other == client => return false,
            Clients::One(other) => {
                let both = [client.min(*other), client.max(*other)];
                *self = Clients::Many(Box::new(both.to_vec()));
            }
            Clients::Many(clients) => match clients.binary_search(&client) {
                Ok(_) => return false,
                Err(place) => clients.insert(place, client),
            },
        }
        true
    }

    /// Whether it was there.
    pub(crate) fn remove(&mut self, client: Client) -> bool {
        match self {
            Clients::One(other) if *other == client => *self = Clients::None,
            Clients::None | Clients::One(_) => return false,
            Clients::Many(clients) => {
                let Ok(place) = clients.binary_search(&client) else {
                    return false;
                };
                clients.remove(place);
                if let [last] = clients[..] {
                    *self = Clients::One(last);
                }
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// All sequences of a few steps beside a set of the library's. (What is equal has to be so as a key, too: there is one way
    /// to have a set.)
    #[test]
    fn it_is_a_set() {
        const STEPS: u32 = 8;
        for sequence in 0..6_u32.pow(STEPS) {
            let (mut clients, mut model) = (Clients::default(), BTreeSet::new());
            for step in 0..STEPS {
                let what = sequence / 6_u32.pow(step) % 6;
                let client = Client::from(what / 2);
                match what % 2 {
                    0 => assert_eq!(clients.add(client), model.insert(client)),
                    _ => assert_eq!(clients.remove(client), model.remove(&client)),
                }
                assert!(clients.iter().eq(model.iter().copied()));
                assert_eq!((clients.len(), clients.is_empty()), (model.len(), model.is_empty()));
                assert_eq!(matches!(clients, Clients::Many(_)), model.len() > 1);
            }
        }
    }
}
