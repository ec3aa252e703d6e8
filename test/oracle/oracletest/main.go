package oracletest

import (
	"flag"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/millrace/millrace/test/oracle/exemption"
	"github.com/millrace/millrace/test/oracle/kcm"
)

// whole is the number of worlds in a whole run of each test.
const whole = "2000"

// Main runs the tests of a package: with the worlds of the day, in UTC, without upstream's logs. After a whole run
// it lists the exemptions that were of no use: of those to which the files of the package refer, and of shared,
// which are IDs of exemptions in the packages below that these worlds use.
func Main(m *testing.M, shared ...string) {
	kcm.Quiet()
	time.Local = time.UTC // upstream evaluates schedules in the machine's time zone
	// Each day has other worlds. The command line may set another seed or number.
	seed := strconv.FormatInt(time.Now().Unix()/86400*1_000_003, 10)
	for name, value := range map[string]string{"rapid.checks": whole, "rapid.seed": seed} {
		if err := flag.Set(name, value); err != nil {
			panic(err)
		}
	}
	flag.Parse()
	folder, err := os.Getwd() // that of the package
	if err != nil {
		panic(err)
	}
	fmt.Printf("worlds of today; again: cd %s && GOWORK=off go test . -rapid.seed=%v\n", folder, flag.Lookup("rapid.seed").Value)
	code := m.Run()
	referred, err := exemption.ReferredTo(".")
	if err != nil {
		panic(err)
	}
	referred = append(referred, exemption.Named(shared...)...)
	if testing.Verbose() {
		fmt.Println(exemption.Report(referred))
	}
	given := func(name string) string { return flag.Lookup(name).Value.String() }
	if code == 0 && given("test.run")+given("test.skip") == "" && given("rapid.checks") == whole {
		fmt.Print(exemption.Unused(referred))
	}
	os.Exit(code)
}

// Fewer makes a test run one part of the requested worlds only. The test must not run in parallel with
// others.
func Fewer(t *testing.T, part int) {
	t.Helper()
	asked := flag.Lookup("rapid.checks").Value.String()
	n, err := strconv.Atoi(asked)
	if err != nil {
		t.Fatal(err)
	}
	if err := flag.Set("rapid.checks", strconv.Itoa(max(n/part, 1))); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = flag.Set("rapid.checks", asked) }) // it was valid before
}
