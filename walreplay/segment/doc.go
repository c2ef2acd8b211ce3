// Package segment is the stored raft log: segments of entries and marks as
// objects of a repository, and the log that they make up together.
//
// It promises:
//
//  1. Standard tools read it. A plain segment is a zstd file as it stands; an
//     encrypted one is an age file behind the first HeaderSize bytes.
//  2. Nothing altered goes unnoticed: Read returns entries only after every
//     byte of the object was accounted for, and ReadHeader a header only after
//     every byte of its block was.
//  3. Entries come in order, without holes, and from one history: each segment
//     agrees with the one before it by the chain's value, or, where a chain
//     begins anew, by equal entries that both hold.
//  4. A damaged or vanished object hides nothing that another one holds.
//  5. Memory is bounded by a few segments, whatever the log's length and
//     whatever hostile objects claim.
//
// # The rules
//
// Behind each is the test that fails if the rule is broken. Package archive has the rules
// of the writers.
//
// What is stored, under which name:
//
//  1. A segment never changes, and is never renamed: it is stored by a conditional put, and
//     its header names its place. A segment under another name is damaged
//     (TestOneNameDecides, TestPromise6SwappedParts).
//  2. At level 0 are segments as archivers cut them: the name holds the first index, and
//     the first index of the segment that ends right before it. Its absence says that a
//     chain begins (TestNamesSayWhatHeadersSay).
//  3. Above level 0 are merged segments, and what an archiver stores beside others. The
//     name holds the first and the last index, and "start" if the segment does not
//     continue what ends right before it (TestPromise6MergedKeepsBreaks).
//  4. A merged segment holds all entries and marks of those that it replaces, in their
//     chain. It spans no gap, and no beginning of a chain but its own
//     (TestPromise1MergeByAge, TestPromise4Boundaries, TestMergeAgainstModel).
//  5. A replaced segment is deleted a day after both it and the merged one came, by the
//     sink's clock, and after the merged one was read whole and found to hold it, by the
//     chain's values at both ends and by its marks (TestPromise2And3KeepForADay,
//     TestPromise2LateSourceStaysADay, TestPromise2AgesAreTheSinksOwn,
//     TestPromise2NamesReplaceNothing, TestPromise2DamagedMergedObjectReplacesNothing).
//  6. The newest segment of level 0 is neither merged nor deleted: the next writer finds
//     the end of the archive there (TestPromise2TheEndStays).
//  7. What is younger than five minutes is not merged: an archiver may still be at it
//     (TestPromise3WhatIsNewSettlesFirst).
//  8. A merge that is killed at any call, or runs on several hosts at once, loses nothing
//     and is completed later (TestPromise6KilledAnywhere, TestPromise1MergedIsReadBack).
//
// What a reader may assume, and what it may not:
//
//  9. Segments overlap: merged ones and those that they replace, and what was stored at
//     level 1 beside others. Any way through them gives the same entries
//     (TestEntriesPreferMerged, TestMergeAgainstModel).
//  10. Two segments are of one history if one begins with the chain's value that the other
//     ends with, if they have a chain's value in common, or if a chain begins with entries
//     of which the other holds at least one, and all that both hold are equal
//     (TestEntriesAcrossAFilledGap, TestPromise6ChainStartBesideAJoinedSegment,
//     TestEntriesOfUnlinkedOverlap). An index that follows another proves nothing
//     (TestPromise6ChainStartWithoutOverlapIsABreak, TestPromise6ContiguousOfAnotherChain).
//  11. If two segments of one chain differ at an index, nothing from there on is returned
//     (TestPromise6ForksAreFound).
//  12. A damaged, foreign or vanished segment counts as absent. Others that hold its entries
//     stand in; if there is none, the error is the damage (TestEntriesFallBack,
//     TestEntriesOfDeletedSegments, TestEntriesOfASegmentThatStaysListed, TestForeignLog).
//  13. A name that was freed may be taken again by a segment that ends elsewhere. What was
//     read of a name before is compared with what is there (TestEntriesOfARenewedSegment,
//     TestPromise2RenewedSource, TestRefreshSeesWhatIsCutShort).
//  14. Names show the whole log if segments follow each other by their names in one chain;
//     then only the last headers of each part are read. If names do not show enough, or
//     reading shows something else, all headers are read (TestNamesSayWhatHeadersSay,
//     TestNamesThatDoNotSay, TestNamesThatLeaveOutWhatCounts, TestWhatJoinsChainsIsRead).
//  15. Whoever continues the archive does so behind the segment that ends last of those
//     that are not damaged, and not at all if a newer version wrote one (TestNewest,
//     TestNewerFormat).
package segment
