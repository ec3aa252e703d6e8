package devices_test

import (
	"testing"

	"github.com/millrace/millrace/test/oracle/oracletest"
)

func TestMain(m *testing.M) { oracletest.Main(m) }
