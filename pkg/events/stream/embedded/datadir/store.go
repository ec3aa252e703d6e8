package datadir

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"golang.org/x/sync/errgroup"

	"github.com/millrace/millrace/pkg/events/subject"
)

// Store is the streams in a data directory. No method may be called while a server runs on the directory, but
// for [Store.MarkClosed] and [Store.Names].
type Store struct {
	// Dir is the data directory, and Streams the folder of the streams in it.
	Dir, Streams string
	// Log receives what was removed or set aside.
	Log *slog.Logger
}

// UnreadableStreamsError names the streams on disk that the server cannot read.
type UnreadableStreamsError struct {
	// Streams are their names, and Why is the server's reason.
	Streams []string
	Why     string
}

// Error says which streams are damaged, and what an operator can do.
func (e *UnreadableStreamsError) Error() string {
	return fmt.Sprintf("damaged streams %s (%s): restore them from a backup, or remove their folders to begin them anew",
		strings.Join(e.Streams, ", "), e.Why)
}

// Names are the names of the streams in the data directory.
//
// Errors: the folder of the streams cannot be read.
func (s *Store) Names() ([]string, error) {
	entries, err := os.ReadDir(s.Streams)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// quarantineFolder is the folder beside the store for unreadable streams and blocks.
const quarantineFolder = "damaged"

// closedFile exists in a store that was closed cleanly, until the store is opened again.
const closedFile = "closed"

// wasClosedCleanly reports whether the store was closed cleanly, and removes the note of that.
func (s *Store) wasClosedCleanly() (inOrder bool, err error) {
	err = os.Remove(filepath.Join(s.Dir, closedFile))
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// MarkClosed notes that the store was closed cleanly.
//
// Errors: the note cannot be written.
func (s *Store) MarkClosed() error {
	return os.WriteFile(filepath.Join(s.Dir, closedFile), nil, 0o600)
}

// CheckBlocks removes damaged messages from uncompressed blocks. In a store that was not closed
// cleanly it also sets aside blocks that cannot be decompressed: the server then reads streams
// from end to end, and deletes a whole stream if it fails at one block; without the block it
// serves the rest. A server of a cluster may delete the stream, because the other replicas have
// all of it: then CheckBlocks checks nothing.
//
// Errors: a file cannot be read, written or moved.
func (s *Store) CheckBlocks(clustered bool) error {
	inOrder, err := s.wasClosedCleanly()
	if err != nil || clustered {
		return err
	}
	names, err := s.Names()
	if err != nil {
		return err
	}
	var checks errgroup.Group
	checks.SetLimit(runtime.GOMAXPROCS(0))
	for _, name := range names {
		blocks, err := filepath.Glob(filepath.Join(s.folder(name), "msgs", "*.blk"))
		if err != nil {
			return errors.Join(err, checks.Wait())
		}
		for _, block := range blocks {
			checks.Go(func() error { return s.checkBlock(name, block, inOrder) })
		}
	}
	return checks.Wait()
}

func (s *Store) checkBlock(stream, block string, inOrder bool) error {
	isPacked, err := isCompressed(block)
	if err != nil || isPacked && inOrder {
		return err
	}
	data, err := os.ReadFile(block)
	if err != nil {
		return err
	}
	if !isPacked {
		return s.removeDamaged(stream, block, data)
	}
	why := canDecompress(data)
	if why == nil {
		return nil
	}
	if err := s.quarantine(block, stream+"-"+filepath.Base(block)); err != nil {
		return err
	}
	s.Log.Error("quarantined a damaged block of messages", "stream", stream, "block", filepath.Base(block), "because", why)
	return nil
}

// isCompressed tells by its first bytes whether a block is compressed.
func isCompressed(block string) (bool, error) {
	file, err := os.Open(block)
	if err != nil {
		return false, err
	}
	defer file.Close()
	head := make([]byte, 16)
	n, err := io.ReadFull(file, head)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return false, err
	}
	var packing server.CompressionInfo
	_, err = packing.UnmarshalMetadata(head[:n])
	return err != nil || packing.Algorithm != server.NoCompression, nil
}

// canDecompress reports whether a compressed block can be decompressed.
func canDecompress(data []byte) error {
	var packing server.CompressionInfo
	header, err := packing.UnmarshalMetadata(data)
	if err == nil {
		_, err = packing.Algorithm.Decompress(data[header:])
	}
	return err
}

// folder is the folder of a stream on disk.
func (s *Store) folder(name string) string {
	return filepath.Join(s.Streams, name)
}

// quarantine moves a damaged file or folder to quarantineFolder, under an unused name.
func (s *Store) quarantine(from, name string) error {
	aside := filepath.Join(s.Dir, quarantineFolder)
	if err := os.MkdirAll(aside, 0o750); err != nil {
		return fmt.Errorf("set %s aside: %w", from, err)
	}
	to := filepath.Join(aside, name+"-"+time.Now().UTC().Format("20060102T150405.000Z"))
	if err := os.Rename(from, to); err != nil {
		return fmt.Errorf("set %s aside: %w", from, err)
	}
	return nil
}

// QuarantineStreams moves the folders of damaged logs aside, where an operator can still
// inspect them, and reports whether a start without them makes sense. The API server still has
// their content: the watcher lists everything and records a gap. No other component has turns
// and outcomes, so an operator must decide about those. An error that is not of type
// [UnreadableStreamsError] changes nothing.
//
// Errors: a folder cannot be moved.
func (s *Store) QuarantineStreams(err error) (worthwhile bool, _ error) {
	var damaged *UnreadableStreamsError
	if !errors.As(err, &damaged) {
		return false, nil
	}
	for _, name := range damaged.Streams {
		if _, ours := subject.KindOfStream(name); !ours {
			return false, nil
		}
	}
	for _, name := range damaged.Streams {
		err := s.quarantine(s.folder(name), name)
		if err != nil && !errors.Is(err, os.ErrNotExist) { // the server removes some by itself
			return false, err
		}
		s.Log.Error("quarantined a damaged stream, and created an empty one", "stream", name, "because", damaged.Why)
	}
	return true, nil
}
