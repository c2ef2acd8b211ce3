// Package store is the Raft store: the bundled one (etcd itself, embedded: a
// Member, or a LocalCluster of 1, 3 or 5), and a Client that knows which
// member of any etcd 3.4 to 3.7 to ask.
//
// What it promises:
//
//  1. A Client never balances between endpoints: each call goes to the member
//     that it names, and an answer by another member is an error.
//  2. A Barrier is only given where a quorum confirmed it. A member that is cut
//     off from its quorum never gives one.
//  3. Members of different clusters in one list of endpoints are an error
//     (MixedClustersError), never a choice.
//  4. Nothing here proposes an entry to the raft log, except that logging in
//     with a password does (etcd's Authenticate goes through the log), and what a
//     caller makes of Client.Ask.
//  5. Errors name the endpoint, the cause and the next step, and never hold a
//     password or a token.
//
// What its caller owes: Close for each Client, SnapshotStream, Member and
// LocalCluster; a context that ends, for calls whose comment says that only
// the context bounds them.
package store
