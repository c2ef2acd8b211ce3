package schedule

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"filippo.io/age"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
)

var (
	// errUnopened says that the identities do not open what the recipients close.
	errUnopened = errors.New("the identities do not decrypt what is encrypted to the recipients")
	// errForeign says that the object is not a canary of these recipients.
	errForeign = errors.New("the canary is not the one of these recipients")
)

// canaryLimit is above a canary for any reasonable number of recipients.
const canaryLimit = 1 << 20

// canary is what is encrypted. It is no secret.
type canary struct {
	Format     int      `json:"format"`
	Repository string   `json:"repository"`
	Recipients []string `json:"recipients"`
}

// A canary finds out that an identity is lost, or is the wrong one, before the day
// on which a backup has to be opened with it: for each set of recipients that a
// repository's agents encrypt to, it is one small object that is encrypted to them.
// As long as somebody's identities open that, they open every backup that is
// encrypted to the same recipients.
//
// checkCanary opens the canary of a set of recipients with the identities, having
// written it where there is none yet. Without identities it makes sure that there
// is one for those who have them. Recipients are public keys: a passphrase has no
// canary.
//
// errUnopened and errForeign are what it is for; any other error says that it
// could not be told.
func checkCanary(ctx context.Context, repo *repository.Repository, recipients []age.Recipient, identities []age.Identity) error {
	names, err := publicKeys(recipients)
	if err != nil {
		return err
	}
	name := repository.CanaryName(fingerprint(names))
	data, err := ensureCanary(ctx, repo, name, recipients, names)
	if err != nil || len(identities) == 0 {
		return err
	}
	plain, err := decrypt(data, identities)
	var mismatch *age.NoIdentityMatchError
	switch {
	case errors.As(err, &mismatch) && fits(recipients, identities):
		return fmt.Errorf("%s in %s: %w: the identities fit the recipients and do not decrypt it; somebody replaced it: find out who, and delete it, so that it is written again", name, repo, errForeign)
	case errors.As(err, &mismatch):
		return fmt.Errorf("%w (%s): none of the %d that were given fits any of them", errUnopened, strings.Join(names, ", "), len(identities))
	case err != nil:
		return fmt.Errorf("%s in %s: %w: it is damaged (%w): delete it, so that it is written again, and run 'requorum verify', for other objects may be damaged too", name, repo, errForeign, err)
	}
	var c canary
	if err := json.Unmarshal(plain, &c); err != nil || !slices.Equal(c.Recipients, names) || repo.ID() != "" && c.Repository != repo.ID() {
		return fmt.Errorf("%s in %s: %w: it was written for another repository or other recipients; delete it, so that it is written again", name, repo, errForeign)
	}
	return nil
}

// ensureCanary reads the canary, and writes it before where it is not there.
func ensureCanary(ctx context.Context, repo *repository.Repository, name string, recipients []age.Recipient, names []string) ([]byte, error) {
	data, err := sinks.Get(ctx, repo.Sink(), name, canaryLimit)
	if !errors.Is(err, sinks.ErrNotFound) {
		return data, err
	}
	plain, err := json.Marshal(canary{repository.Format, repo.ID(), names})
	if err != nil {
		return nil, err
	}
	if data, err = encryptTo(plain, recipients); err != nil {
		return nil, err
	}
	_, err = sinks.Put(ctx, repo.Sink(), name, data, sinks.CreateOptions{})
	if err != nil && !errors.Is(err, sinks.ErrExists) {
		return nil, fmt.Errorf("write %s in %s: %w", name, repo, err)
	}
	// What is there now, whoever wrote it.
	return sinks.Get(ctx, repo.Sink(), name, canaryLimit)
}

// publicKeys are the recipients' public keys, sorted, each once.
func publicKeys(recipients []age.Recipient) ([]string, error) {
	if len(recipients) == 0 {
		return nil, errors.New("nothing is encrypted: there are no recipients to check")
	}
	var names []string
	for _, r := range recipients {
		public, ok := r.(fmt.Stringer)
		if !ok {
			return nil, errors.New("a recipient has no public key that could name it: a passphrase has no canary")
		}
		names = append(names, public.String())
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

func fingerprint(names []string) string {
	sum := sha256.Sum256([]byte(strings.Join(names, "\n")))
	return hex.EncodeToString(sum[:8])
}

// fits reports whether the identities open what is encrypted to the recipients now.
func fits(recipients []age.Recipient, identities []age.Identity) bool {
	data, err := encryptTo([]byte("canary"), recipients)
	if err != nil {
		return false
	}
	_, err = decrypt(data, identities)
	return err == nil
}

func encryptTo(plain []byte, recipients []age.Recipient) ([]byte, error) {
	var sealed bytes.Buffer
	w, err := age.Encrypt(&sealed, recipients...)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(plain); err != nil {
		return nil, err
	}
	err = w.Close()
	return sealed.Bytes(), err
}

func decrypt(sealed []byte, identities []age.Identity) ([]byte, error) {
	r, err := age.Decrypt(bytes.NewReader(sealed), identities...)
	if err != nil {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(r, canaryLimit))
}
