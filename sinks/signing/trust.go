package signing

import (
	"errors"
	"fmt"
	"path"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/requorum/requorum/sinks"
)

// Trust is whose signatures are believed: OpenSSH's allowed_signers, less revoked keys.
type Trust struct {
	files   []file               // that it was read from
	allowed map[string][]allowed // by the key's bytes
	revoked map[string]string    // the file that revokes a key, by the key's bytes
}

// allowed is one line of a file of trusted keys.
type allowed struct {
	who           string   // its principals
	namespaces    []string // patterns; none: every namespace
	after, before time.Time
}

// file is a file's name and what is in it.
type file struct{ Name, Text string }

// Changed reports whether the files that t was read from hold something else now, or
// cannot be read.
func (t *Trust) Changed() bool {
	if t == nil {
		return false
	}
	for _, f := range t.files {
		if data, err := readFile(f.Name); err != nil || string(data) != f.Text {
			return true
		}
	}
	return false
}

// ReadTrust reads trusted keys: a file as ssh-keygen -Y verify reads it with -f. The
// files revoked hold public keys, one a line, as for -r. Lines with what is not supported are
// errors, since to leave a restriction out would trust more than was asked.
func ReadTrust(trusted string, revoked []string) (*Trust, error) {
	t := &Trust{allowed: map[string][]allowed{}, revoked: map[string]string{}}
	for _, path := range append([]string{trusted}, revoked...) {
		data, err := readFile(path)
		if err != nil {
			return nil, err
		}
		t.files = append(t.files, file{path, string(data)})
	}
	err := t.files[0].eachLine(func(line string) error {
		key, one, err := parseAllowed(line)
		if err == nil {
			t.allowed[string(key.Marshal())] = append(t.allowed[string(key.Marshal())], one)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if len(t.allowed) == 0 {
		return nil, fmt.Errorf("%s names no key: want lines such as backup@example.com ssh-ed25519 AAAA…", trusted)
	}
	for _, f := range t.files[1:] {
		err := f.eachLine(func(line string) error {
			key, _, _, rest, err := ssh.ParseAuthorizedKey([]byte(line))
			if err != nil || len(rest) > 0 {
				return errors.New("want a public key, such as ssh-ed25519 AAAA…")
			}
			t.revoked[string(key.Marshal())] = f.Name
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return t, nil
}

// eachLine calls line for each that is neither empty nor a comment.
func (f file) eachLine(line func(string) error) error {
	if strings.HasPrefix(f.Text, "SSHKRL\n\x00") {
		return fmt.Errorf("%s is a binary revocation list (KRL), which is not supported: write the revoked public keys into a file, one a line", f.Name)
	}
	n := 0
	for text := range strings.SplitSeq(f.Text, "\n") {
		n++
		if text = strings.TrimSpace(text); text == "" || text[0] == '#' {
			continue
		}
		if err := line(text); err != nil {
			return fmt.Errorf("%s, line %d: %w", f.Name, n, err)
		}
	}
	return nil
}

func readFile(path string) ([]byte, error) {
	data, err := sinks.ReadFile(path, keyFileLimit)
	if errors.Is(err, sinks.ErrTooLarge) {
		err = fmt.Errorf("%w: that is no file of keys", err)
	}
	return data, err
}

// parseAllowed reads "principals [options] keytype base64 [comment]".
func parseAllowed(line string) (ssh.PublicKey, allowed, error) {
	who, rest, _ := strings.Cut(strings.ReplaceAll(line, "\t", " "), " ")
	if strings.HasPrefix(who, `"`) {
		return nil, allowed{}, errors.New("a quoted name in front is not supported: write it without quotes and spaces")
	}
	if strings.ContainsAny(who, `="`) { // ssh-keygen takes it for a name, and so for no restriction
		return nil, allowed{}, fmt.Errorf("%s stands where a name belongs: options come after the name: backup@example.com %s ssh-ed25519 AAAA…", who, who)
	}
	key, _, options, more, err := ssh.ParseAuthorizedKey([]byte(rest))
	if err != nil || len(more) > 0 {
		return nil, allowed{}, errors.New("want a name, options if any, and a public key: backup@example.com ssh-ed25519 AAAA…")
	}
	if t := key.Type(); t != ssh.KeyAlgoED25519 {
		return nil, allowed{}, fmt.Errorf("%s is a key of type %s: only Ed25519 keys sign", who, t)
	}
	one := allowed{who: who}
	given := map[string]bool{}
	for _, option := range options {
		name, value, _ := strings.Cut(option, "=")
		if given[strings.ToLower(name)] {
			return nil, allowed{}, fmt.Errorf("%s: option %s: it is given twice", who, name)
		}
		given[strings.ToLower(name)] = true
		value = strings.Trim(value, `"`)
		switch strings.ToLower(name) {
		case "namespaces":
			one.namespaces, err = parsePatterns(value)
		case "valid-after":
			one.after, err = parseTime(value)
		case "valid-before":
			one.before, err = parseTime(value)
		default:
			err = errors.New("it is not supported: only namespaces, valid-after and valid-before are")
		}
		if err != nil {
			return nil, allowed{}, fmt.Errorf("%s: option %s: %w", who, name, err)
		}
	}
	return key, one, nil
}

func parsePatterns(value string) ([]string, error) {
	all := strings.Split(value, ",")
	for _, p := range all {
		if p == "" || strings.Trim(p, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.@*?") != "" {
			return nil, fmt.Errorf("%q: want namespaces such as requorum-manifest, or patterns with * and ?", p)
		}
	}
	return all, nil
}

// parseTime takes those of ssh-keygen's times that mean one time everywhere.
func parseTime(value string) (time.Time, error) {
	for _, layout := range []string{"20060102Z", "200601021504Z", "20060102150405Z"} {
		if t, err := time.Parse(layout, value); err == nil {
			return t, nil
		}
	}
	return time.Time{}, fmt.Errorf("%q: want a time in UTC with a Z at its end, such as 20260131Z or 20260131235900Z: without it, it is another time on each host", value)
}

// ErrRevoked says that a key is not trusted any more.
var ErrRevoked = errors.New("was revoked")

// permits reports whether a key may sign in a namespace, at a time; an empty namespace is
// any that it may sign in.
func (t *Trust) permits(key ssh.PublicKey, namespace string, at time.Time) error {
	name := ssh.FingerprintSHA256(key)
	if file, is := t.revoked[string(key.Marshal())]; is {
		return fmt.Errorf("key %s %w by %s", name, ErrRevoked, file)
	}
	err := fmt.Errorf("key %s is not among those in %s", name, t.files[0].Name)
	for _, one := range t.allowed[string(key.Marshal())] {
		switch {
		case !one.signs(namespace):
			err = fmt.Errorf("key %s (%s) may not sign %s: %s allows it other namespaces", name, one.who, namespace, t.files[0].Name)
		case at.Before(one.after), !one.before.IsZero() && at.After(one.before):
			err = fmt.Errorf("key %s (%s) is not valid at %s, by %s", name, one.who, at.Format(timeLayout), t.files[0].Name)
		default:
			return nil
		}
	}
	return err
}

func (a allowed) signs(namespace string) bool {
	if namespace == "" || len(a.namespaces) == 0 {
		return true
	}
	for _, p := range a.namespaces {
		if ok, err := path.Match(p, namespace); ok && err == nil {
			return true
		}
	}
	return false
}
