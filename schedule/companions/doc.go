// Package companions stores files that a cluster cannot be rebuilt without, beside
// its data: its PKI, an EncryptionConfiguration, the token of k3s. They go with
// each full snapshot, encrypted, and come back with Extract.
//
// It promises:
//
//  1. A companion holds every file that is listed, as it was at one moment each,
//     or the backup fails and says which file is why.
//  2. The same files give the same bytes, whoever packs them and when.
//  3. What is taken out again is readable by its owner alone, lies within the
//     folder that was named, and overwrites nothing; after an error nothing is
//     left of it.
//  4. Secrets stay out of errors: they name files, never content.
package companions
