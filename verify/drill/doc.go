// Package drill proves a database image by a cluster that was built from it: of
// the original size, on loopback, in a scratch folder. It boots, elects, serves,
// is compared with the database, and is destroyed.
//
// It promises:
//
//  1. What a passed drill says was proved was done by a real cluster of the
//     bundled etcd: its Compared names it.
//  2. The members run in a process of their own. etcd ends its whole process on
//     a database that makes no sense: that is a finding here, and no crash.
//  3. What is damaged is told apart from what could not be tried: no space, no
//     port, no memory and no time are Unchecked, never Damaged.
//  4. Nothing remains. The folder goes, also after a failure or a cancellation;
//     what a killed drill left is removed by the next one in the same folder, and
//     its members end with it.
//  5. The image is only read. Passwords in it stay unknown and are not needed.
//
// While it runs, the scratch cluster listens on 127.0.0.1 alone, without TLS:
// where authentication is off in the image, whoever can reach that address, which
// is everybody on the machine, can read it.
//
// It is owed: a program whose Options.Command calls Members, and room for as
// many copies of the database as there are members.
//
// The scratch cluster differs from one that a restore builds in this: its
// members have new names and addresses, its revision is not bumped (so that
// revisions compare), there is no quota, and where authentication is on the
// users that it logs in with have new passwords, in the copy.
package drill
