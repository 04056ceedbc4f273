// Package daemon is the head as a process: it passes what users and agents say to the core (package
// head), and carries out the effects that the core returns.
//
// # The loop and the disk
//
// One goroutine, the loop, owns the core. It takes events from a queue, lets the core handle some
// of them, and collects the effects. Another goroutine, the committer, writes the collected records
// in one transaction and only then sends, answers and publishes. While a transaction is being
// synced the loop continues, and what it collects is the next transaction. So each transaction
// carries what came during the one before it, and everything leaves in the order of the events that
// caused it.
//
// Requests that only read go through the loop too, and are answered when everything that they may
// show is on disk: no user or agent sees what a crash could undo.
//
// When a commit fails, the core knows what the disk does not, and a core that has gone on cannot
// take that back. So the daemon ends: waiting callers get 503 with the reason, and were promised
// nothing. The next daemon starts from what is on disk. A service manager restarts it until the
// disk has room again.
//
// # Callers
//
// The head answers the same requests at a TLS port and at a Unix socket. At the port a certificate
// identifies the caller (wire/identity); at the socket the kernel does. Connections that are not
// authenticated yet have few places and little time. Users and nodes have places of their own, so
// that no flood of connections, by others or by the same user, shuts an agent out.
//
// # Agents and streams
//
// An agent has one session, a connection that was upgraded. Messages to it wait in a bounded queue.
// If the agent does not drain the queue, the head closes the session, since an agent that greets
// again is told everything that matters. For the output of a job, or a command in it, the head asks
// the agent for another connection, under a name that is valid once and for that node only, and
// joins it to the user's connection.
package daemon
