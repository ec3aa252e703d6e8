package embedded

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/minio/highwayhash"
	"github.com/nats-io/nats-server/v2/server"
)

// What a server is told follows from its options; what makes no sense is refused.
func TestSettingsOfAServer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cluster := ClusterOptions{Listen: "127.0.0.1:6222", Routes: []string{" a:6222", "nats-route://b:6222"}}
	for name, c := range map[string]struct {
		options Options
		holds   func(s *server.Options) bool
	}{
		"of this process": {Options{}, func(s *server.Options) bool {
			return s.DontListen && s.ServerName == "millrace" && s.JetStream && s.MaxPending == 256<<20 && s.StoreDir == dir && s.JetStreamMaxStore > 0
		}},
		"with its limits": {Options{Name: "n", MaxStore: 7, MaxMemory: 8, MaxPayload: 9, SyncAlways: true, SyncInterval: time.Second}, func(s *server.Options) bool {
			return s.ServerName == "n" && s.JetStreamMaxStore == 7 && s.JetStreamMaxMemory == 8 && s.MaxPayload == 9 && s.SyncAlways && s.SyncInterval == time.Second
		}},
		"on a port":   {Options{Listen: "127.0.0.1:4222"}, func(s *server.Options) bool { return s.DontListen && s.Host == "127.0.0.1" && s.Port == 4222 }},
		"on any port": {Options{Listen: "127.0.0.1:0"}, func(s *server.Options) bool { return s.Port == server.RANDOM_PORT }},
		"of a cluster": {Options{Name: "n", Listen: "127.0.0.1:4222", Cluster: cluster}, func(s *server.Options) bool {
			return !s.DontListen && s.Cluster.Name == "millrace" && s.Cluster.Host == "127.0.0.1" && s.Cluster.Port == 6222 && len(s.Routes) == 2 && s.Routes[0].Host == "a:6222" && s.Routes[0].User == nil && s.Cluster.PingInterval == PingEvery
		}},
		"of a closed one": {Options{Name: "n", Listen: "127.0.0.1:4222", Cluster: ClusterOptions{Name: "c", Listen: "127.0.0.1:1", Routes: []string{"a:1"}, User: "u", Password: "p", NoAdvertise: true}}, func(s *server.Options) bool {
			return s.Cluster.Name == "c" && s.Cluster.NoAdvertise && s.Cluster.Username == "u" && s.Routes[0].User.String() == "u:p"
		}},
		"no port":            {Options{Listen: "127.0.0.1"}, nil},
		"a port that is no":  {Options{Listen: "127.0.0.1:x"}, nil},
		"no routes":          {Options{Name: "n", Cluster: ClusterOptions{Listen: "127.0.0.1:1"}}, nil},
		"no cluster":         {Options{Cluster: ClusterOptions{Routes: []string{"a:1"}}}, nil},
		"no name":            {Options{Cluster: cluster}, nil},
		"port 0":             {Options{Name: "n", Cluster: ClusterOptions{Listen: "127.0.0.1:0", Routes: []string{"a:1"}}}, nil},
		"no cluster port":    {Options{Name: "n", Cluster: ClusterOptions{Listen: "127.0.0.1", Routes: []string{"a:1"}}}, nil},
		"half a login":       {Options{Name: "n", Cluster: ClusterOptions{Listen: "127.0.0.1:1", Routes: []string{"a:1"}, User: "u"}}, nil},
		"the other half":     {Options{Name: "n", Cluster: ClusterOptions{Listen: "127.0.0.1:1", Routes: []string{"a:1"}, Password: "p"}}, nil},
		"a login in routes":  {Options{Name: "n", Cluster: ClusterOptions{Listen: "127.0.0.1:1", Routes: []string{"nats-route://u:p@a:1"}}}, nil},
		"a route to no port": {Options{Name: "n", Cluster: ClusterOptions{Listen: "127.0.0.1:1", Routes: []string{"a"}}}, nil},
		"a route that is no": {Options{Name: "n", Cluster: ClusterOptions{Listen: "127.0.0.1:1", Routes: []string{"://p@ss"}}}, nil},
		"TLS without files":  {Options{TLS: TLSOptions{CertFile: "x"}}, nil},
		"accounts and users": {Options{Accounts: "x", Password: "p"}, nil},
		"no accounts file":   {Options{Accounts: dir + "/none"}, nil},
	} {
		c.options.Dir = dir
		s, err := c.options.server()
		if (err == nil) != (c.holds != nil) || err == nil && !c.holds(s) {
			t.Errorf("%s: %+v, %v", name, s, err)
		}
		if err != nil && strings.Contains(err.Error(), "p@ss") {
			t.Errorf("%s: an error repeats an address: %v", name, err)
		}
	}
}

// Streams take up three quarters of what is free and of what they have already.
func TestHowMuchOfADiskStreamsTakeUp(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	before := disk(dir)
	if before <= 0 || disk(dir+"/none") != 0 {
		t.Fatalf("of a disk they take %d, and of none %d", before, disk(dir+"/none"))
	}
	if err := os.MkdirAll(dir+"/a/b", 0o700); err != nil {
		t.Fatal(err)
	}
	file, err := os.Create(dir + "/a/b/c")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	const size = 1 << 43 // of holes, which take up nothing; a file may be as large everywhere
	if err := file.Truncate(size); err != nil {
		t.Fatal(err)
	}
	if more := disk(dir) - before; more < size/4*3-size/100 || more > size/4*3+size/100 {
		t.Errorf("with %d bytes in it they take %d more", int64(size), more)
	}
}

// The server's log is passed on by its levels. Why it gives up is its first word of that, and
// why it could not read a stream its last warning.
func TestTheServersLog(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	l := &serverLog{to: slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))}
	l.Noticef("notice %d\n", 1)
	l.Warnf("warning %d", 2)
	l.Warnf("warning %d ", 3)
	l.Errorf("error %d", 4)
	l.Debugf("debug %d", 5)
	l.Tracef("trace %d", 6)
	if l.fatalError() != nil {
		t.Errorf("it gives up: %v", l.fatalError())
	}
	l.Fatalf("fatal %d", 7)
	l.Fatalf("fatal %d", 8)
	for _, line := range []string{`INFO msg="notice 1"`, `WARN msg="warning 2"`, `ERROR msg="error 4"`, `DEBUG msg="debug 5"`} {
		if !strings.Contains(out.String(), line) {
			t.Errorf("%s is not in %s", line, out.String())
		}
	}
	if strings.Contains(out.String(), "trace") || strings.Contains(out.String(), "fatal") || l.lastWarning() != "warning 3" || l.fatalError().Error() != "fatal 7" {
		t.Errorf("the last warning is %q, and it gives up with %v", l.lastWarning(), l.fatalError())
	}
}

// A directory is for one process, whose number is in it.
func TestADirectoryIsLocked(t *testing.T) {
	t.Parallel()
	if _, err := lockDirectory(""); err == nil {
		t.Error("no directory is locked")
	}
	dir := filepath.Join(t.TempDir(), "new")
	l, err := lockDirectory(dir)
	if err != nil {
		t.Fatal(err)
	}
	own := fmt.Sprint(os.Getpid())
	if text, err := os.ReadFile(dir + "/lock"); err != nil || string(text) != own+"\n" {
		t.Errorf("in the lock is %q, %v", text, err)
	}
	if _, err := lockDirectory(dir); !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), "process "+own) {
		t.Errorf("it is locked twice: %v", err)
	}
	if err := l.release(); err != nil {
		t.Fatal(err)
	}
	again, err := lockDirectory(dir)
	if err != nil {
		t.Fatalf("when it was released: %v", err)
	}
	if err := again.release(); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(dir+"/file", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := lockDirectory(dir + "/file"); err == nil || errors.Is(err, ErrInUse) {
		t.Errorf("a file is locked as a directory: %v", err)
	}
}

// A store that was closed in order says so once.
func TestAStoreThatWasClosedInOrder(t *testing.T) {
	t.Parallel()
	s := &Server{options: Options{Dir: t.TempDir()}}
	for i, want := range []bool{false, true, false} {
		if i == 1 {
			if err := s.markClosed(); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := s.wasClosedCleanly(); got != want || err != nil {
			t.Errorf("at look %d it was closed in order: %t, %v", i, got, err)
		}
	}
	if err := os.MkdirAll(s.options.Dir+"/closed/x", 0o700); err != nil {
		t.Fatal(err)
	}
	if got, err := s.wasClosedCleanly(); got || err == nil {
		t.Errorf("where that cannot be told it was: %t, %v", got, err)
	}
	if err := s.markClosed(); err == nil {
		t.Error("where that cannot be noted there is no error")
	}
}

// A directory of a cluster's server is not one of a server that stands alone, nor the other way
// round, where it has streams.
func TestADirectoryIsUsedInOneWay(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		folder       string
		alone, three bool // who may use it
	}{"empty": {"", true, true}, "of a cluster": {metaDir, false, true}, "of one alone": {"jetstream/$G/streams/EV_pods", true, false}} {
		dir := t.TempDir()
		if err := os.MkdirAll(filepath.Join(dir, c.folder), 0o700); err != nil {
			t.Fatal(err)
		}
		for clustered, may := range map[bool]bool{false: c.alone, true: c.three} {
			o := Options{Dir: dir}
			if clustered {
				o.Cluster.Listen = "127.0.0.1:1"
			}
			if err := o.checkDirectory(); (err == nil) != may {
				t.Errorf("%s, of a cluster: %t: %v", name, clustered, err)
			}
		}
	}
	dir := t.TempDir()
	if err := errors.Join(os.MkdirAll(dir+"/jetstream/$G/streams/EV_pods", 0o700), os.WriteFile(dir+"/jetstream/$G/streams/file", nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if names, err := (Options{Dir: dir}).streamsOnDisk(); err != nil || len(names) != 1 || names[0] != "EV_pods" {
		t.Errorf("on disk are %v, %v", names, err)
	}
}

// recorded is a message as a block that is not packed has it.
func recorded(sequence uint64, subject, headers, data string) []byte {
	const stream, block = "EV_pods", "1"
	row := make([]byte, recordHead, 256)
	binary.LittleEndian.PutUint64(row[4:], sequence)
	binary.LittleEndian.PutUint16(row[recordHead-2:], uint16(len(subject)))
	row = append(row, subject...)
	rest := len(row)
	flag := uint32(0)
	if headers != "" {
		row = binary.LittleEndian.AppendUint32(row, uint32(len(headers)))
		rest, flag = len(row), headersFlag
	}
	row = append(append(row, headers...), data...)
	key := sha256.Sum256([]byte(stream + "-" + block))
	sum, err := highwayhash.NewDigest64(key[:])
	if err != nil {
		panic(err)
	}
	for _, part := range [][]byte{row[4 : recordHead-2], row[recordHead : recordHead+len(subject)], row[rest:]} {
		_, _ = sum.Write(part)
	}
	row = sum.Sum(row)
	binary.LittleEndian.PutUint32(row, uint32(len(row))|flag)
	return row
}

// What is damaged in a block is taken out, and what is sound stays, to the byte; so does what is behind the
// last record that can be told.
func TestWhatIsSoundInABlock(t *testing.T) {
	t.Parallel()
	const headers = "NATS/1.0\r\nA: 1\r\n\r\n"
	least, bare := recorded(4, "", "", ""), recorded(5, "ev.pods.d", headers, "")
	one, two, three := recorded(1, "ev.pods.a", "", "first"), recorded(2, "ev.pods.b", headers, "second"), recorded(3, "ev.pods.c", "", "")
	changed := func(row []byte, at int) []byte {
		row = slices.Clone(row)
		row[at] ^= 1
		return row
	}
	longer := slices.Clone(two) // its headers are said to end elsewhere, which no sum covers
	longer[recordHead+len("ev.pods.b")]--
	for name, c := range map[string]struct {
		block   [][]byte
		sound   [][]byte
		damaged int
	}{
		"whole":                            {[][]byte{one, two, three}, [][]byte{one, two, three}, 0},
		"of nothing":                       {nil, nil, 0},
		"headers without a body":           {[][]byte{bare, one}, [][]byte{bare, one}, 0},
		"the shortest record":              {[][]byte{changed(least, 4), one, changed(least, 4)}, [][]byte{one}, 2},
		"a sequence":                       {[][]byte{one, changed(two, 4), three}, [][]byte{one, three}, 1},
		"a subject":                        {[][]byte{changed(one, recordHead), two, three}, [][]byte{two, three}, 1},
		"a header":                         {[][]byte{one, changed(two, recordHead+9+4+10), three}, [][]byte{one, three}, 1},
		"the length of headers":            {[][]byte{one, longer, three}, [][]byte{one, three}, 1},
		"a body":                           {[][]byte{changed(one, len(one)-9), changed(two, len(two)-9), three}, [][]byte{three}, 2},
		"a sum":                            {[][]byte{one, two, changed(three, len(three)-1)}, [][]byte{one, two}, 1},
		"the end of what was written":      {[][]byte{one, two[:len(two)-1]}, [][]byte{one, two[:len(two)-1]}, 0},
		"all but a record's head and sum":  {[][]byte{one, make([]byte, recordHead+recordSum-1)}, [][]byte{one, make([]byte, recordHead+recordSum-1)}, 0},
		"zeroes at the end":                {[][]byte{one, make([]byte, 100)}, [][]byte{one, make([]byte, 100)}, 0},
		"damage, and the end of a writing": {[][]byte{changed(one, 4), three, two[:20]}, [][]byte{three, two[:20]}, 1},
	} {
		sound, damaged, err := withoutDamaged(slices.Concat(c.block...), "EV_pods", "/data/msgs/1.blk")
		if err != nil || damaged != c.damaged || !bytes.Equal(sound, slices.Concat(c.sound...)) {
			t.Errorf("%s: %d are damaged, and %q is sound, %v", name, damaged, sound, err)
		}
	}
	if _, damaged, _ := withoutDamaged(slices.Clone(one), "EV_pods", "/data/msgs/2.blk"); damaged != 1 {
		t.Error("a record of another block is sound")
	}
}
