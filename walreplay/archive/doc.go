// Package archive keeps the committed raft log of one member in a repository,
// continuously, while the member writes it.
//
// It promises:
//
//  1. Only committed entries are archived. What a member's log holds and the
//     cluster refused never gets there.
//  2. The archive is in order, and nothing is skipped, whatever is unreachable (the
//     repository, the member, this process). What no archiver holds any more is
//     recorded as a gap, and reported, and a full snapshot is due at once.
//  3. Histories never mix. A log that contradicts what is archived goes to a
//     timeline of its own.
//  4. Of several archivers of one cluster one writes and the others stand by.
//     Whatever the others do meanwhile, late or twice, the archive stays right.
//  5. It changes nothing in the cluster: it reads files, and asks for status.
//  6. Silence is not success: a position that does not advance is an alarm.
//
// It is owed in return: a Status that comes from the member itself (no load
// balancer), and a spool folder that no other archiver uses.
//
// It is a pipeline. The log's tail is read; what is known to be committed goes to the
// outbox: memory, and what the repository does not take in time, the spool. Each
// archiver fills its outbox, and entries leave it, in order, when a contiguous archive
// holds them, whoever stored them there.
//
// # The rules
//
// Promises 2 to 4 follow from the rules below. Check the code against them; behind each
// is the test that fails if the rule is broken. TestSimulation_RandomArchivers breaks
// everything at random, and checks all of them at the end.
//
// Who writes a name, and when:
//
//  1. A segment that continues the archive has one name: its first index, and the first
//     index of the segment that ends right before it. Any archiver that continues from
//     the same end chooses the same name, and a conditional put decides
//     (TestNames, TestPromise4RaceForOneName).
//  2. The writer stores what comes next. A follower reads the header under that name, once
//     an interval while it has something to archive; it lists nothing
//     (TestPromise4OneWriterNoLists, TestIdleIsCheap).
//  3. A follower puts only after the archive was late for its takeover time by its own
//     monotonic clock, and after one listing. No two wait equally long
//     (TestPromise4Takeover, TestPromise4LateByTheMonotonicClock, TestListBeforeTakeover,
//     TestTakeoverTimesDiffer).
//  4. The archiver that stored the last segment begins as the writer, and others as
//     followers (TestPromise4StickyAfterARestart).
//  5. If the name is taken, the archiver reads the header there, compares it with its own
//     entries, and continues behind it; if it holds other entries, it chooses a timeline
//     again (TestPromise4RaceForOneName, TestPromise6SplitBrainMetWhileFollowing).
//  6. A put that failed may have succeeded. The archiver reads what is under the name
//     before it decides, and counts its own bytes there as stored
//     (TestLostAnswer, TestGapWithALostAnswer, TestOwnLatePutStaysWriter).
//  7. A put ends a minute after its segment was cut, or was taken from the spool. Pruning
//     frees names a day later at the earliest, so no late put lands in a freed name.
//     A spooled segment that is older is put after a listing only
//     (TestPutIsGivenUp, TestLateWriter, TestSpoolAndFreedNames).
//  8. If an object under the name is damaged, or by a writer that is not trusted, it stays
//     there, and the entries are stored once more at level 1, whose names differ
//     (TestDamagedHeaderIsPassed).
//  9. A chain begins anew (a header without a value before it) only if the archiver's
//     entries do not follow the archive's end, or it cannot prove that they do; after three
//     takeover times in which another archiver could have stored them, not counting the
//     time for which the repository was unreachable; and after one listing
//     (TestGap, TestGapIsLeftToTheOthers, TestGapWaitsForTheRepository,
//     TestPromise6ContinuityUnproven).
//  10. Archivers that begin a chain at different indexes have different names. Each lists
//     once after such a put, and follows if it is not alone (TestDifferentBeginnings). So has
//     one that continues the archive while another begins a chain: both may store the same
//     entries, and what both hold joins them (TestPromise2ContinuedWhileAChainBegins).
//  11. A missing range is written down as a gap behind the put that passed it, or when a
//     look through the archive finds it. The record outlives a session, not a process; the
//     next look finds the range again (TestGap, TestGapRecordOutlivesASession,
//     TestPromise2LostSegment).
//  12. From a gap on, a full snapshot is due until one was taken behind it; that is
//     remembered on disk before it is called for, and the call is repeated
//     (TestSecondGapHasItsSnapshot, TestSeveralGaps, TestOnGapOnceAtATime).
//
// What is spooled:
//
//  13. An entry that the repository does not take within two intervals is on the disk, in a
//     segment that is not encrypted, and that only its owner can read: the member's own WAL
//     beside it holds the same. An agent needs no identity, and could not cut it again
//     otherwise (TestPromise2RepositoryAway, TestHangingPutSpools,
//     TestSpool_OfAnEncryptedArchive_IsPlainAndPrivate).
//  14. What is stored of a spooled segment is encoded for each put, and encrypted then. An
//     agent without recipients stores nothing in a timeline that is encrypted
//     (TestSpool_WithoutRecipients_StaysOutOfAnEncryptedTimeline). At the archive's end the
//     segment is cut to what the archive lacks, and gets the name of rule 1
//     (TestSpool_OverTheEnd_IsCutThere, TestOverlappingSpool). If another archiver passed that
//     point in another chain, it is stored whole, at level 1, and overlaps its neighbors: what
//     both hold is the proof that they are of one history
//     (TestPromise2SpoolAfterAnothersChainStart, TestPromise2SpoolOfAnotherChain,
//     TestPromise2SpoolWhereTheNameIsTaken).
//  15. A spooled segment leaves the disk when it was stored, or when the archive holds its
//     entries and the member's log was compared with the archive
//     (TestTakeoverWhileSpooling, TestPromise2ArchiveGoesOnWhileTheSpoolIsCompared).
//  16. A spooled segment that the archive contradicts is not stored in its timeline, and is
//     not deleted (TestSpoolOfAnotherWay, TestSpoolOfAnotherHistoryStays).
//  17. It is stored without its member, and after its cluster left the timeline
//     (TestPromise2SpoolOfADeadMember, TestPromise2SpoolOfALeftTimeline).
//  18. The spool and the purged files that are kept open have one bound. Beyond it an
//     archiver lets purged files go and holds back what the member still has; what it
//     stored it keeps (TestSpoolBound, TestSpoolOverflow, TestPromise2FullSpoolAtTheReturn,
//     TestPromise2SpoolDiskFull).
//
// Which timeline:
//
//  19. At its beginning an archiver compares the member's committed log with the last
//     segment of each timeline of its cluster, from the newest on, and continues the first
//     one that the log holds. "Equal" is the chain's value over the member's own entries
//     (TestPartOfTheLastSegmentIsCompared, TestPromise6SplitBrain).
//  20. A timeline is opened only if a committed entry differs, or a quorum confirms that
//     the cluster is behind the archive. A log that does not reach back far enough, or a
//     member that was set back alone, opens none (TestPromise6EntryDiffers,
//     TestPromise6ClusterBehindTheArchive, TestPromise6NoQuorumNoVerdict,
//     TestPromise6RolledBackMember).
//  21. Nothing is archived to a timeline that a recovery ended (TestPromise6Superseded,
//     TestPromise6SupersededAndDiffers).
//
// What a process that is killed leaves, by the line at which it is killed:
//
//  22. Before a put: entries are in the member's log, or in the spool. The next process
//     reads them there (TestPromise2SpoolSurvivesKill).
//  23. After a put: a whole segment, or none; a sink shows no part of an object. The next
//     process finds it as the archive's end, and compares its log with it
//     (TestPromise4StickyAfterARestart).
//  24. After a spooled segment was stored, before it left the disk: both. The next
//     process finds its entries archived, stores nothing twice, and rule 15 counts
//     (TestSpool_KilledBeforeASegmentLeftIt_StoresNothingTwice).
//  25. While a spooled segment is written: the sink's temporary file, which is not read. A
//     file that is damaged later is left there, and the member's log fills in
//     (TestDamagedSpool, TestPromise2SpoolBehindADamagedOne).
//  26. Behind a put that passed a gap, before it was written down: a hole in the listing,
//     or two chains, and the next look has a full snapshot taken
//     (TestGap_KilledBeforeItWasRecorded_IsFoundAgain, TestPromise6ContinuityUnproven).
//  27. position.json may be of any earlier moment, or missing. It only lets an archiver
//     begin while the repository is unreachable, and remembers the full snapshot that is
//     due; what is archived is found by listing (TestPromise2SpoolSurvivesKill,
//     TestPromise4NoNewRepositoryForALostOne).
package archive
