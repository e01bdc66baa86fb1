package sqlite

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/sallyport/sallyport/operation"
	"github.com/sallyport/sallyport/store/seal"
)

// Ledger is a file of SQLite with the operations. Whoever writes waits for the disk together with all that write at that time, see
// commits.
type Ledger struct {
	file

	keys    *seal.Keys
	name    string
	since   time.Time
	lock    *os.File // kept while the file is open
	read    finder
	commits *commits

	callReads callTable // those of the readers

	mu    sync.Mutex       // protects the fields below
	turn  uint64           // counts the uses of Due
	turns map[int64]uint64 // when lanes with something due were served last
}

var (
	_ operation.Ledger = (*Ledger)(nil)
	_ operation.Keeper = (*Ledger)(nil)
)

// mostChecked is up to which size a ledger is checked when it is opened, in bytes: it takes about a second. Rows have sums, so what is
// damaged in a larger one is found when it is read.
const mostChecked = 64 << 20

// OpenLedger opens the ledger in the file at path, a file of its own, and makes it if there is none; the directory must exist. The keys
// seal what may be secret and open what was sealed before. It refuses what [Open] refuses, in the same way, and with [ErrSealed] a
// ledger whose key is not among them.
func OpenLedger(ctx context.Context, path string, keys *seal.Keys) (*Ledger, error) {
	return openLedger(ctx, path, keys, lockWait, mostChecked)
}

func openLedger(ctx context.Context, path string, keys *seal.Keys, wait time.Duration, checkedBytes int64) (*Ledger, error) {
	l := &Ledger{keys: keys}
	var err error
	if l.lock, err = lockFile(path); err != nil {
		l.noun, l.path = "ledger", path
		return nil, l.explain(ctx, err)
	}
	err = l.open(ctx, path, &schema{
		noun: "ledger", directory: "migrations/ledger", application: 0x53706c67, probe: "DELETE FROM operations WHERE false",
		checkedBytes: checkedBytes, begin: l.found,
	}, wait)
	if err != nil {
		return nil, errors.Join(err, l.lock.Close())
	}
	lock, err := placeOf(l.lock.Name())
	if err == nil {
		l.places = append(l.places, lock)
		err = l.start(ctx)
	}
	if err != nil {
		return nil, errors.Join(l.explain(ctx, err), l.close(), l.lock.Close())
	}
	return l, nil
}

// found writes who the ledger is into a new file.
func (l *Ledger) found(ctx context.Context, tx *sql.Tx) error {
	random := make([]byte, 8)
	_, _ = rand.Read(random) // never fails (crypto/rand)
	id := hex.EncodeToString(random)
	created, err := formatTime(time.Now())
	if err != nil {
		return err
	}
	proof := l.keys.Seal(nil, id, "proof")
	_, err = tx.ExecContext(ctx, "INSERT INTO ledger (one, id, create_time, proof, sum) VALUES (1, ?, ?, ?, ?)",
		id, created, proof, sumOfLedger(id, created, proof))
	return err //nolint:wrapcheck // explained by open
}

func sumOfLedger(id, created string, proof []byte) []byte {
	return sumOf([]byte("ledger"), []byte(id), []byte(created), proof)
}

// start reads who the ledger is, sees that the keys are its own, and begins to write.
func (l *Ledger) start(ctx context.Context) error {
	var (
		id, created string
		proof, sum  []byte
		err         error
	)
	err = l.writer.QueryRowContext(ctx, "SELECT id, create_time, proof, sum FROM ledger").Scan(&id, &created, &proof, &sum)
	if errors.Is(err, sql.ErrNoRows) {
		return fmt.Errorf("%w: it has no identity", ErrDamaged)
	}
	if err != nil {
		return err //nolint:wrapcheck // explained by OpenLedger
	}
	if err := same(sum, sumOfLedger(id, created, proof), "the identity"); err != nil {
		return err
	}
	if l.since, err = parseTime(created); err != nil {
		return fmt.Errorf("%w: the identity: %w", ErrDamaged, err)
	}
	l.name = "sqlite:" + id
	if err := l.prove(ctx, id, created, proof); err != nil {
		return err
	}
	if l.read, err = newFinder(ctx, l.reader); err != nil {
		return err
	}
	if err := prepareAll(ctx, l.reader, l.callReads.reads()); err != nil {
		return err
	}
	l.commits, err = newCommits(ctx, l)
	return err
}

// prove opens the proof, and seals it anew where the first of the keys is not the one that it was sealed with: so an old key can go.
func (l *Ledger) prove(ctx context.Context, id, created string, proof []byte) error {
	switch _, err := l.keys.Open(proof, id, "proof"); {
	case errors.Is(err, seal.ErrUnknownKey):
		return ErrSealed
	case err != nil:
		return fmt.Errorf("%w: the identity is %w", ErrDamaged, err)
	case l.keys.Current(proof):
		return nil
	}
	proof = l.keys.Seal(nil, id, "proof")
	return transact(ctx, l.writer, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "UPDATE ledger SET proof = ?, sum = ?", proof, sumOfLedger(id, created, proof))
		return err //nolint:wrapcheck // explained by OpenLedger
	})
}

// Close ends what is going on and closes the file. Nothing may be called after it; what still waited has failed.
func (l *Ledger) Close() error {
	l.commits.close()
	err := errors.Join(l.read.close(), l.callReads.close(), l.close())
	if e := l.lock.Close(); !errors.Is(e, os.ErrClosed) {
		err = errors.Join(err, e)
	}
	return l.explain(context.Background(), err)
}

// Identity implements [operation.Keeper]. The name is "sqlite:" and a random id that was made with the file.
func (l *Ledger) Identity() (name string, since time.Time) { return l.name, l.since }

// Begin implements [operation.Ledger].
func (l *Ledger) Begin(ctx context.Context, start *operation.Record) (operation.Record, bool, error) {
	lead := *start
	lead.State, lead.Epoch, lead.UpdateTime = operation.StateRunning, 1, start.CreateTime
	// Sealed here and not where all wait for one.
	fresh, err := sealRow(l.keys, &lead)
	if err != nil {
		return operation.Record{}, false, l.explain(ctx, err)
	}
	var (
		stands row
		led    bool
	)
	err = l.commits.do(ctx, fresh.size(), func(ctx context.Context, b *batch) error {
		old, found, err := b.find(ctx, start.Key)
		if err != nil {
			return err
		}
		if led = !found || old.Free(); !led {
			stands = old
			return nil
		}
		stands = fresh
		if !found {
			return b.insert(ctx, &stands)
		}
		stands.n, stands.Epoch = old.n, old.Epoch+1
		stands.CreateTime, stands.FirstSend, stands.Effect = old.CreateTime, old.FirstSend, old.Effect
		return b.update(ctx, &old, &stands)
	})
	if err != nil {
		return operation.Record{}, false, l.explain(ctx, err)
	}
	r, err := stands.open(l.keys)
	return r, led && err == nil, l.explain(ctx, err)
}

// Write implements [operation.Ledger].
func (l *Ledger) Write(ctx context.Context, r *operation.Record) error {
	next, err := sealRow(l.keys, r)
	if err != nil {
		return l.explain(ctx, err)
	}
	return l.explain(ctx, l.commits.do(ctx, next.size(), func(ctx context.Context, b *batch) error {
		old, found, err := b.find(ctx, next.Key)
		if err != nil {
			return err
		}
		if !found || old.Epoch != next.Epoch {
			return operation.ErrSuperseded
		}
		stands := next
		stands.n, stands.CreateTime = old.n, old.CreateTime
		return b.update(ctx, &old, &stands)
	}))
}

// Operation implements [operation.Reader].
func (l *Ledger) Operation(ctx context.Context, k operation.Key) (operation.Record, error) {
	r, found, err := l.read.find(ctx, k)
	if errors.Is(err, ErrDamaged) {
		// Two indexes were asked at two instants. Asked at one, they agree or one is damaged.
		r, found, err = l.findAtOnce(ctx, k)
	}
	if err == nil && !found {
		err = operation.ErrNotFound
	}
	if err != nil {
		return operation.Record{}, l.explain(ctx, err)
	}
	record, err := r.open(l.keys)
	return record, l.explain(ctx, err)
}

func (l *Ledger) findAtOnce(ctx context.Context, k operation.Key) (r row, found bool, err error) {
	tx, err := l.reader.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return row{}, false, err //nolint:wrapcheck // explained by Operation
	}
	defer func() { _ = tx.Rollback() }() // it has read only
	return l.read.in(ctx, tx).find(ctx, k)
}

// Operations implements [operation.Reader].
func (l *Ledger) Operations(ctx context.Context, caller string, s operation.State, after operation.Cursor, n int) ([]operation.Record, error) {
	query, args := "SELECT "+rowColumns+" FROM operations", []any{caller}
	switch s {
	case operation.StateUnspecified:
		query += " INDEXED BY operations_by_time WHERE caller = ?"
	case operation.StateRunning: // said as the partial index says it
		query += " INDEXED BY operations_open WHERE caller = ? AND state = 1 AND state <> 2"
	case operation.StateUnknown:
		query += " INDEXED BY operations_open WHERE caller = ? AND state = 3 AND state <> 2"
	default:
		query += " INDEXED BY operations_by_time WHERE caller = ? AND state = ?"
		args = append(args, int64(s))
	}
	if after != (operation.Cursor{}) {
		created, err := formatTime(after.CreateTime)
		if err != nil {
			return nil, l.explain(ctx, err)
		}
		query += " AND (create_time, id) < (?, ?)"
		args = append(args, created, after.ID)
	}
	rows, err := list(ctx, &l.file, scanOperation, query+" ORDER BY create_time DESC, id DESC LIMIT ?", append(args, atMost(n))...)
	if err != nil {
		return nil, err
	}
	all := make([]operation.Record, 0, len(rows))
	for i := range rows {
		r, err := rows[i].open(l.keys)
		if err != nil {
			return nil, l.explain(ctx, err)
		}
		all = append(all, r)
	}
	return all, nil
}
