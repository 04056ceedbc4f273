// Package workers starts the processes that serve clients, speaks to them and ends them. It keeps some
// waiting, so that a program need not wait for one to start: without a client and, where somebody says
// for which device and how, with a context open there. It confines them, and lends each a user number of
// its own. It knows neither clients nor what workers say: whoever has a worker reads its messages.
package workers
