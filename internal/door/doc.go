// Package door keeps listening sockets alive and the connections that they
// accept bounded, whoever connects:
//
//   - a Listener goes on accepting after a lack of descriptors or memory, and
//     says while it lasts that it cannot;
//   - Places bound connections that nobody has a use for yet, for each user and in
//     all, and choose which of them to close when room is needed;
//   - an Eager connection has a reader that looks for bytes before it sleeps;
//   - a Patient connection gives the other side a time for each read and write;
//   - PortTrouble says in words why a port cannot be opened.
//
// It knows no protocol, and of users only a name.
package door
