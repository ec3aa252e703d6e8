package workloads_test

import (
	"testing"

	"github.com/millrace/millrace/test/oracle/oracletest"
)

func TestMain(m *testing.M) {
	oracletest.Main(m, "one-update", "delete-conditions", "any-name", "scaled-in-one-event", "refused-second-write")
}
