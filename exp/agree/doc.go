// Package agree holds what-if (head/whatif) to live runs: the same jobs on the same cluster under one policy
// after the other, with shares of GPUs that the nodes bind late. From the history of each run it is computed
// what every policy would have given, and that is compared with what it gave.
//
// The runs are recorded in testdata; the test with -update makes them anew, with a real head, nodes with
// software GPUs and real programs.
package agree
