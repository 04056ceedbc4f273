// Package daemon is the head as a process: it carries what users and agents say to
// the core (package head), and does what the core answers.
//
// # The loop and the disk
//
// One goroutine, the loop, owns the core. It takes events from a queue, lets the
// core handle some of them, and collects the effects. Another, the committer,
// writes the collected records in one transaction and then, and only then, sends,
// answers and publishes. While a transaction is being synced the loop goes on, and
// what it collects is the next transaction. So each transaction carries what came
// during the one before it, and the order of events is the order of everything that
// leaves.
//
// What is read goes through the loop too, and is answered when all that it may show is
// on disk: no user or agent sees what a crash could undo.
//
// When a commit fails, the core knows what the disk does not. There is no way to take
// that back in a core that has gone on, so the daemon ends: waiting callers get 503
// with the reason, and were promised nothing, and the next daemon starts from what is
// on disk. A service manager restarts it until the disk has room again.
//
// # Who comes
//
// The same requests are answered at a TLS port and at a Unix socket. At the port a
// certificate says who is there (wire/identity); at the socket the kernel does.
// Unauthenticated connections have few places and little time. Users and nodes have
// places of their own, so that no flood of connections, by others or its own, shuts an
// agent out.
//
// # Agents and streams
//
// An agent has one session, a connection that was upgraded. What is sent to it waits in
// a bounded queue; a session that does not drain it is hung up, since an agent that
// greets again is told everything that matters. For the output of a job, or a command
// in it, the head asks the agent for another connection, by a name that is valid once
// and for that node only, and joins it to the user's connection.
package daemon
