package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"filippo.io/age"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/requorum/requorum/schedule/config"
	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/codec"
	"github.com/requorum/requorum/sinks/place"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/sinks/signing"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/store/client"
	"github.com/requorum/requorum/store/safedir"
	"github.com/requorum/requorum/walreplay"
)

// repoFlags name the repositories and how to talk to them.
type repoFlags struct {
	urls     []string
	limits   sinks.Limits
	retryFor time.Duration
	keys     keyFlags
}

func (r *repoFlags) addFlags(f *pflag.FlagSet, several bool) {
	usage := "`URL` of the repository: file:///path, /path, ./path, or s3://bucket/prefix?region=…"
	if several {
		usage += "; may be given more than once"
	}
	f.StringArrayVarP(&r.urls, "repo", "r", nil, usage)
	bytesVar(f, &r.limits.Up, "limit-upload", "", "at most this many bytes a second to a repository, such as 50MiB")
	durationVar(f, &r.retryFor, "retry-for", time.Minute, time.Millisecond, "how long to try again while a repository is away or throttles")
	bytesVar(f, &r.limits.Down, "limit-download", "", "at most this many bytes a second from a repository, such as 50MiB")
	f.StringVar(&r.keys.signingKey, "signing-key", "", "sign what is written into a repository with the Ed25519 key in this `file` (ssh-keygen -t ed25519)")
	r.keys.addTrustFlags(f)
}

// keyFlags say with which key is signed, and whose signatures are believed.
type keyFlags struct {
	signingKey string
	trust      string
	revoked    []string
	insecure   bool
	// allowRollback takes a repository that holds less than before as it is.
	allowRollback bool
}

func (k *keyFlags) addTrustFlags(f *pflag.FlagSet) {
	f.StringVar(&k.trust, "trust", "", "believe only what a key in this `file` signed (OpenSSH's allowed_signers); the rest of a repository does not exist then")
	f.StringArrayVar(&k.revoked, "revoked-keys", nil, "public keys in this `file`, one a line, are not trusted any more; may be given more than once")
	f.BoolVar(&k.insecure, "insecure-unsigned", false, "check nobody's signature, although a file of trusted keys is configured")
}

// orRollback adds to an error about a repository that holds less than before what takes
// it as it is.
func orRollback(err error) error {
	var less *walreplay.RolledBackError
	if !errors.As(err, &less) {
		return err
	}
	return fmt.Errorf("%w; --allow-rollback takes it as it is", err)
}

func (k *keyFlags) addRollbackFlag(f *pflag.FlagSet) {
	f.BoolVar(&k.allowRollback, "allow-rollback", false, "go on although the repository holds less than when it was read last (with --trust)")
}

// checks reports whether signatures are checked.
func (k *keyFlags) checks() bool { return k.trust != "" && !k.insecure }

// parse reads the keys. It says so where trust is set aside.
func (k *keyFlags) parse(g *globals) (signing.Keys, error) {
	key, trust, revoked := k.signingKey, k.trust, k.revoked
	if k.insecure {
		if _, err := os.Stat(key); errors.Is(err, fs.ErrNotExist) && key != "" {
			g.note("%s is not there: what this command writes is not signed", key)
			key = ""
		}
		if trust != "" {
			g.note("--insecure-unsigned: nobody's signature is checked, although %s says whom to trust: who could write to the repository decides what is read", trust)
		}
		trust, revoked = "", nil
	}
	// Not the signing key: whoever could have written it can sign with it anyway.
	for _, path := range append([]string{trust}, revoked...) {
		if path == "" {
			continue
		}
		if err := safedir.TrustedFile(path); err != nil {
			return signing.Keys{}, fmt.Errorf("keys: %w", err)
		}
	}
	if trust == "" && len(revoked) > 0 {
		return signing.Keys{}, usageError{errors.New("--revoked-keys is of no use without --trust")}
	}
	if trust == "" && k.allowRollback {
		return signing.Keys{}, usageError{errors.New("--allow-rollback is of no use without --trust: what was seen of a repository counts only where signatures are checked")}
	}
	keys, err := signing.Read(key, trust, revoked)
	if err != nil {
		return keys, fmt.Errorf("keys: %w", err)
	}
	if trust == "" {
		return keys, nil
	}
	dir, err := config.SeenDir(g.getenv)
	if err != nil {
		g.note("how far the repository reaches is not remembered, so that an older copy of it will not be noticed: %v", err)
		return keys, nil
	}
	keys.Memory = &signing.Memory{Dir: dir, Allow: k.allowRollback, Unkept: func(err error) { g.note("%v", err) }}
	return keys, nil
}

// mayWrite refuses a command that would write what it would not believe itself.
func (k *keyFlags) mayWrite() error {
	if k.trust != "" && !k.insecure && k.signingKey == "" {
		return usageError{errors.New("--trust without --signing-key: what this command writes would not be signed, and ignored by all that check signatures: give --signing-key too")}
	}
	return nil
}

// noteUnchecked says that nobody's signature is checked, for a command that acts upon
// what it reads.
func (g *globals) noteUnchecked(checked bool) {
	if !checked {
		g.note("nobody's signature was checked: who can write to the repository decides what is read; --trust FILE names whom to believe")
	}
}

// noteUnusable names the unusable objects that were passed over.
func (g *globals) noteUnusable(r *repository.Repository) {
	const most = 5
	all := r.Unusable()
	for i, one := range all {
		if i == most {
			g.note("%d more objects in %s are unusable; 'requorum list' names them", len(all)-most, r)
			break
		}
		g.note("%v", one.Err)
	}
}

// how is how the repositories are opened, where each is named once.
func (r *repoFlags) how(g *globals) (sinks.Options, signing.Keys, error) {
	o := sinks.Options{Limits: r.limits, Retry: sinks.Retry{For: r.retryFor, Logger: g.logger()}}
	names := placeNames(r.urls)
	if len(names) == 0 {
		return o, signing.Keys{}, usageError{errors.New("no repository: give --repo URL or set REQUORUM_REPO")}
	}
	for i, name := range names {
		if slices.Contains(names[:i], name) {
			return o, signing.Keys{}, usageError{fmt.Errorf("--repo %s is given twice", name)}
		}
	}
	keys, err := r.keys.parse(g)
	return o, keys, err
}

// openSinks opens all repositories' sinks. The caller closes them.
func (r *repoFlags) openSinks(ctx context.Context, g *globals) ([]sinks.Sink, error) {
	o, keys, err := r.how(g)
	if err != nil {
		return nil, err
	}
	var all []sinks.Sink
	for _, u := range r.urls {
		s, err := place.Open(ctx, u, o)
		if err != nil {
			return nil, errors.Join(ofURL(err), closeSinks(all))
		}
		all = append(all, repository.WithKeys(s, keys))
	}
	return all, nil
}

// ofURL makes an error about a URL that names no place one of wrong usage.
func ofURL(err error) error {
	if errors.Is(err, place.ErrURL) {
		return usageError{fmt.Errorf("--repo: %w", err)}
	}
	return err
}

// openSink opens the one repository of a command that takes one.
func (r *repoFlags) openSink(ctx context.Context, g *globals) (sinks.Sink, error) {
	if len(r.urls) > 1 {
		return nil, usageError{fmt.Errorf("%d repositories given; this command takes one --repo", len(r.urls))}
	}
	all, err := r.openSinks(ctx, g)
	if err != nil {
		return nil, err
	}
	return all[0], nil
}

// with opens the one repository of a command, for as long as it is worked with.
func (r *repoFlags) with(ctx context.Context, g *globals, do func(*repository.Repository) error) error {
	repo, err := r.openRepository(ctx, g)
	if err != nil {
		return err
	}
	return errors.Join(do(repo), repo.Sink().Close())
}

// backupFlags name a backup in a repository, beside its ID.
type backupFlags struct {
	repo     repoFlags
	timeline string
}

func (b *backupFlags) addFlags(f *pflag.FlagSet) {
	b.repo.addFlags(f, false)
	addTimelineFlag(f, &b.timeline)
}

// foundBackup is one that the arguments name, and what it was found in.
type foundBackup struct {
	*snapshot.Manifest
	repo *repository.Repository
	all  *walreplay.Inventory
}

// with finds the backup that the arguments name, for as long as it is worked with.
func (b *backupFlags) with(ctx context.Context, g *globals, args []string, do func(*foundBackup) error) error {
	return b.repo.with(ctx, g, func(r *repository.Repository) (err error) {
		found := &foundBackup{repo: r}
		if found.all, err = walreplay.ReadInventory(ctx, r); err != nil {
			return err
		}
		if found.Manifest, err = findBackup(ctx, found.all, args, b.timeline); err != nil {
			return err
		}
		return do(found)
	})
}

// openRepository opens the one repository of a command that reads one. The
// caller closes its sink.
func (r *repoFlags) openRepository(ctx context.Context, g *globals) (*repository.Repository, error) {
	sink, err := r.openSink(ctx, g)
	if err != nil {
		return nil, err
	}
	repo, err := repository.Open(ctx, sink)
	if err != nil {
		return nil, errors.Join(err, sink.Close())
	}
	if damage := repo.Damage(); damage != nil {
		g.note("%v; the backups are not affected", damage)
	}
	return repo, nil
}

// placeNames are URLs of repositories in the one way in which their places are written.
func placeNames(urls []string) (all []string) {
	for _, u := range urls {
		all = append(all, place.Name(u))
	}
	return all
}

func closeSinks(all []sinks.Sink) error {
	var errs []error
	for _, s := range all {
		errs = append(errs, s.Close())
	}
	return errors.Join(errs...)
}

// codecFlags say how a backup is compressed, and to whom it is encrypted.
type codecFlags struct {
	level          codec.Level
	recipients     []string
	recipientFiles []string
}

func (r *codecFlags) addFlags(f *pflag.FlagSet) {
	choiceVar(f, &r.level, "compression-level", codec.DefaultLevel, "compression: fastest, default, better or best", codec.LevelFastest, codec.LevelDefault, codec.LevelBetter, codec.LevelBest)
	f.StringArrayVar(&r.recipients, "recipient", nil, "encrypt to this age `recipient` (age1…); may be given more than once")
	f.StringArrayVar(&r.recipientFiles, "recipients-file", nil, "encrypt to the age recipients in this `file`, one a line")
}

func (r *codecFlags) options() (codec.Options, error) {
	o := codec.Options{Level: r.level}
	for _, s := range r.recipients {
		one, err := codec.ParseRecipient(s)
		if err != nil {
			return o, usageError{fmt.Errorf("--recipient: %w", err)}
		}
		o.Recipients = append(o.Recipients, one)
	}
	for _, path := range r.recipientFiles {
		some, err := codec.ParseRecipientsFile(path)
		if err != nil {
			return o, fmt.Errorf("--recipients-file: %w", err)
		}
		o.Recipients = append(o.Recipients, some...)
	}
	return o, nil
}

// identityFlags say how to read an encrypted backup.
type identityFlags struct {
	files []string
}

func (i *identityFlags) addFlags(f *pflag.FlagSet) {
	f.StringArrayVar(&i.files, "identity", nil, "decrypt with the age identities in this `file`; may be given more than once")
}

func (i *identityFlags) parse() ([]age.Identity, error) {
	var all []age.Identity
	for _, path := range i.files {
		some, err := codec.ParseIdentitiesFile(path)
		if err != nil {
			return nil, fmt.Errorf("--identity: %w", err)
		}
		all = append(all, some...)
	}
	return all, nil
}

// connFlags are etcdctl's flags for reaching a cluster. What is not given is
// taken from the ETCDCTL_ variables.
type connFlags struct {
	flags    *pflag.FlagSet
	cfg      client.Config
	user     string
	insecure bool
}

func (c *connFlags) addFlags(f *pflag.FlagSet) {
	c.flags = f
	f.StringSliceVar(&c.cfg.Endpoints, "endpoints", nil, "etcd's client URLs, separated by commas (default "+client.DefaultEndpoint+", or ETCDCTL_ENDPOINTS)")
	f.BoolVar(&c.cfg.DiscoverEndpoints, "discover-endpoints", false, "also use the endpoints that the members advertise")
	f.StringVar(&c.cfg.CACert, "cacert", "", "verify etcd's certificate with the CA in this `file`")
	f.StringVar(&c.cfg.Cert, "cert", "", "client certificate `file`")
	f.StringVar(&c.cfg.Key, "key", "", "client key `file`")
	f.BoolVar(&c.insecure, "insecure-transport", true, "use plain text to endpoints without a scheme when no TLS file is given")
	f.BoolVar(&c.cfg.InsecureSkipTLSVerify, "insecure-skip-tls-verify", false, "accept any certificate (for tests only)")
	f.StringVar(&c.user, "user", "", "`name[:password]`; a missing password is asked for on a terminal")
	f.StringVar(&c.cfg.Password, "password", "", "password of --user; better in ETCDCTL_PASSWORD, where other users cannot see it")
	durationVar(f, &c.cfg.DialTimeout, "dial-timeout", client.DefaultDialTimeout, 0, "time to connect")
	durationVar(f, &c.cfg.CommandTimeout, "command-timeout", client.DefaultCommandTimeout, 0, "time for one short request")
}

// connect connects to the cluster. The caller closes the client.
func (c *connFlags) connect(ctx context.Context, g *globals) (*client.Client, error) {
	cfg, err := c.config(g)
	if err != nil {
		return nil, err
	}
	return client.Dial(ctx, cfg)
}

func (c *connFlags) config(g *globals) (client.Config, error) {
	cfg, err := client.ConfigFromEnv(g.getenv)
	if err != nil {
		return cfg, usageError{err}
	}
	override(c.flags, "endpoints", &cfg.Endpoints, c.cfg.Endpoints)
	for i, e := range cfg.Endpoints { // "a, b"
		cfg.Endpoints[i] = strings.TrimSpace(e)
	}
	override(c.flags, "cacert", &cfg.CACert, c.cfg.CACert)
	override(c.flags, "cert", &cfg.Cert, c.cfg.Cert)
	override(c.flags, "key", &cfg.Key, c.cfg.Key)
	override(c.flags, "insecure-transport", &cfg.SecureTransport, !c.insecure)
	override(c.flags, "insecure-skip-tls-verify", &cfg.InsecureSkipTLSVerify, c.cfg.InsecureSkipTLSVerify)
	override(c.flags, "dial-timeout", &cfg.DialTimeout, c.cfg.DialTimeout)
	override(c.flags, "command-timeout", &cfg.CommandTimeout, c.cfg.CommandTimeout)
	cfg.DiscoverEndpoints = c.cfg.DiscoverEndpoints
	cfg.StallTimeout = c.cfg.StallTimeout
	cfg.Logger = g.logger()
	if c.flags.Changed("user") {
		user, password := client.SplitUser(c.user)
		if user != cfg.User { // whose password may stand in ETCDCTL_USER
			cfg.User, cfg.Password = user, g.getenv("ETCDCTL_PASSWORD")
		}
		cfg.Password = cmp.Or(password, cfg.Password)
	}
	override(c.flags, "password", &cfg.Password, c.cfg.Password)
	if cfg.User != "" && cfg.Password == "" {
		cfg.Password, err = askPassword(g, cfg.User)
	}
	return cfg, err
}

// override sets a value that the user gave.
func override[T any](f *pflag.FlagSet, name string, to *T, value T) {
	if f.Changed(name) {
		*to = value
	}
}

// askPassword asks on a terminal; elsewhere a missing password is an error,
// since nobody would answer.
func askPassword(g *globals, user string) (string, error) {
	file, ok := g.stdin.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		return "", usageError{fmt.Errorf("no password for user %s: give --user name:password or set ETCDCTL_PASSWORD", user)}
	}
	fmt.Fprintf(g.stderr, "Password of %s: ", user)
	password, err := term.ReadPassword(int(file.Fd()))
	fmt.Fprintln(g.stderr)
	if err != nil {
		return "", fmt.Errorf("read the password: %w", err)
	}
	return string(password), nil
}
