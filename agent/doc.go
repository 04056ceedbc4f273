// Package agent runs the jobs' processes of a node. Run keeps a connection to the
// head, feeds what happens to agent/agentcore, and does what that decides. Each task has
// a supervisor, a process of its own (Main, the hidden command muster task), which
// outlives the agent: an agent that is killed and started again finds it by a socket in
// the task's folder.
//
// The spool survives restarts: it has a folder for each task, with a lock that the
// supervisor holds for as long as it lives. Only the holder of the lock may write how
// the task ended. A supervisor writes down that it begins before it starts the first
// process, and starts nothing if a begin or an end was written before. So whichever
// process is killed, a task begins at most once, and an agent that gets the lock of a
// task without an end knows that the task is lost.
//
// The job's processes are started by way of a second process (enter), which runs as the
// job's user from its first instruction: it goes to the folder, opens the files and
// then becomes the program. Nothing that a user names is opened by root, and nothing of
// a job's environment reaches code that runs as root.
//
// A supervisor is a child subreaper, so that every process of the task stays below it,
// and ends when it has no child left. Where the system lets it, a task also has a
// control group. If the supervisor is killed, its children die with it, and the agent
// looks for processes that are left: in the control group, among the processes that the
// supervisor has written down, and by a variable that only processes of the task have.
//
// The package knows no policy, and nothing of the daemon but what Config hands over.
package agent
