// Package api is the head's HTTP interface: the documents that its clients send
// and get. The command line, the page and users' scripts use nothing else.
//
//	GET    /v1/cluster                  what cluster this is: Cluster
//	POST   /v1/jobs                     submit: Submission or a list of them; answered with Submitted or a list
//	GET    /v1/jobs                     jobs that have not ended, and those of the last minutes: Jobs
//	                                    ?user= ?state=PENDING,RUNNING ?node= ?name= ?account=; ?job=17,18_3 only these, at most
//	                                    100, with what the policy says of each
//	GET    /v1/jobs/ID                  one job: Job; ID is 17, or 17_3 for a task of an array; of a whole array, if
//	                                    it has several tasks: Jobs
//	DELETE /v1/jobs/ID                  cancel it: ?signal=TERM sends a signal only; answered with Changed
//	POST   /v1/jobs/ID/ACTION           hold, release, suspend, resume, move, requeue: no body; priority: Priority; limit: Limit
//	POST   /v1/jobs/ID/ACTION           of an allocation: keep: its command is there, answered with Kept; finish: it has ended: Finished
//	GET    /v1/jobs/ID/output           its output as it is: ?stream=output|error ?part=0 ?offset=0 ?follow=true
//	POST   /v1/jobs/ID/exec             a command among its processes: Exec in the query, as ?node= ?arg= ?arg= ?dir=
//	                                    ?env= ?terminal=24x80; upgrades to muster-stream
//	GET    /v1/nodes, /v1/nodes/NAME    Nodes, Node
//	GET    /v1/nodes/NAME/status        what the node says of itself: wire/status.Node, what muster ps --json prints there
//	POST   /v1/nodes/NAME/ACTION        drain: Drain; remove: RemoveNode; rename: RenameNode; label: LabelNode; resume: no body (administrators)
//	GET    /v1/partitions               the partitions, in the order of the configuration: Partitions
//	GET    /v1/history                  jobs that have ended, the oldest first: Jobs; ?since= ?until= ?user= ?after=ID ?limit=
//	GET    /v1/usage                    what users and accounts used: Usage
//	GET    /v1/priorities               why the queue stands as it does: Priorities
//	GET    /v1/whatif                   what other policies would have made of the last day and week: WhatIf
//	POST   /v1/whatif                   simulate that now: WhatIfWanted; answered with WhatIf (administrators)
//	GET    /v1/events                   changes as they happen, as server-sent events: Change
//	GET    /v1/openapi.json             this, for programs
//	POST   /v1/reload                   has the configuration read again: Reloaded (administrators)
//	GET    /v1/backup                   a copy of what the head has on disk (administrators)
//	GET    /v1/snapshot                 what the policy knows now and decides on it, as lines of JSON, for muster sim replay
//	                                    (administrators)
//	GET    /v1/heads                    the heads, which of them leads, and how far each one is: Heads
//	DELETE /v1/heads/ADDRESS            go on without a head (administrators)
//	POST   /v1/heads                    take another head in: JoinHeads (heads)
//	GET    /v1/heads/self               one head, as the others ask it: Head (heads)
//	POST   /v1/page                     a one-time address of the page: Page. Browsers sign in with it at its own port, and
//	                                    then ask as here
//	GET    /v1/agent, /v1/agent/streams/ID   for agents alone; upgrade to muster-agent and muster-stream
//
// Times are in seconds, instants in seconds since 1970, sizes in bytes. An error is
// answered with its status and Error. Nothing that a client sends beyond what is
// described is ignored: it is refused.
//
// What a job asks for is said in Slurm's words, as options (see model/slurmopt).
//
// The package knows no transport and no state.
package api
