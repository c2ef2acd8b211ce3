// Package flagfile reads those of etcd's flags that say who the members are where a
// host keeps them, and brings them in line after a recovery: in the manifest of a
// static pod, or in the environment file of a unit. It promises:
//
//  1. Only the values of the flags in Flags are changed, or a flag of them is added;
//     every other byte stays, and what comes out is read again and compared before it
//     is written. What cannot be read for sure is refused with a *ByHandError.
//  2. The file is replaced in one step, with owner, mode and label, and the old one is
//     kept beside it where no kubelet looks.
//  3. Values are taken from nobody that could be more than names and URLs: see Check.
//
// The caller makes sure that the member is stopped: an edit while it runs would
// restart it.
package flagfile
