i
-m
CASE WHEN i > 0 THEN 'some' WHEN i < 0 THEN 'less' ELSE 'none' END
CASE WHEN b THEN i ELSE l END
CASE WHEN b THEN m ELSE i END
CASE t WHEN 1 THEN d WHEN 5 THEN 2 END
IF(b, s, 'x')
concat(s, '-', n)
concat(s, i, '/', m, b)
s || ' has ' || i
day || ''
concat(ts, '')
concat(tn)
upper(s)
lower(s)
trim(s)
btrim(s)
ltrim(s)
rtrim(s)
length(s)
substring(s, 2)
substring(s, -2, 1)
left(s, 1)
right(s, 2)
replace(s, 'a', 'xy')
replace(s, 'a')
replace(s, '', 'z')
replace(s, ' ', '')
replace(s, '日', '\\1 $1')
round(d)
round(d, 1)
round(f, 1)
round(d * 1.005D, 2)
round(CAST(m AS DOUBLE) * 1.115D, 2)
round(d, -1)
round(m)
round(m, 1)
round(m, 5)
round(m, -1)
round(m, -3)
round(w)
round(w, 3)
round(w, -2)
round(i)
round(i, 2)
round(CAST(t AS INT), -1)
round(CAST(h AS BIGINT), -2)
round(l, 0)
CASE WHEN i BETWEEN -100000 AND 100000 THEN round(i, -3) END
CASE WHEN abs(d) < 1e10 THEN floor(d) END
CASE WHEN abs(f) < 1e10 THEN floor(f) END
CASE WHEN abs(d) < 1e10 THEN ceil(d) END
ceiling(CAST(m AS DOUBLE))
floor(m)
ceil(m)
floor(i)
ceil(l)
ceil(w)
floor(-1.5)
greatest(i, 3)
greatest(i, t, h)
greatest(i, m)
greatest(d, 1)
greatest(d, f, 1.5D)
least(d, f, 1.5D)
least(d, CAST('NaN' AS DOUBLE))
least(i, NULL, 2)
greatest(s, n)
least(s, n, 'b')
greatest(day, DATE '2013-06-01')
least(ts, TIMESTAMP '2000-01-01 00:00:00Z')
greatest(b, FALSE)
coalesce(i, t, 0)
coalesce(s, n, 'none')
nullif(i, 1)
nullif(s, '')
nvl(i, l)
nvl2(i, s, n)
ifnull(s, 'none')
date_add(DATE '2020-02-28', t)
date_sub(DATE '2020-02-28', 7)
datediff(day, DATE '2013-01-01')
year(day) * 100 + month(day)
trunc(day, 'MM')
date_trunc('month', ts)
CAST(i AS STRING)
CAST(m AS STRING)
CAST(b AS STRING)
CAST(day AS STRING)
CAST(ts AS STRING)
CAST(tn AS STRING)
CAST(TIMESTAMP '2020-01-01 10:00:00.100Z' AS STRING)
CAST(m AS INT)
CAST(t AS DECIMAL(10,3))
CAST(i AS DOUBLE)
CAST(i AS FLOAT)
CAST(' 5 ' AS INT)
CAST('2020-01-01' AS DATE)
CAST(d AS FLOAT)
CAST(ts AS DATE)
CAST(day AS TIMESTAMP)
to_timestamp('2020-01-01 00:00:00')
to_date('2020-01-01')
CASE WHEN i < 100000 AND i > -100000 THEN i * 2 + 1 END
m * 1.1
m / 3
i / 4
l DIV 7
i % 5
CASE WHEN i < 100000 AND i > -100000 THEN abs(i) END
CAST(NULL AS INT)
TRUE
7Y
7S
7L
1.50
1.5BD
2.5D
2.5F
'it\'s'
X'CAFE'
DATE '2020-02-29'
TIMESTAMP '2020-02-29 12:00:00Z'
TIMESTAMP_NTZ '2020-02-29 12:00:00'
3000000000
x
arr
r
r.a
i > 3 AND b
-CAST(i AS BIGINT)
-d
CASE WHEN i > -5 AND i < 5 THEN -i END
greatest(tn, TIMESTAMP_NTZ '2000-01-01 00:00:00')
least(f, CAST(1.5 AS FLOAT))
greatest(w, m)
round(2.5)
round(-2.5)
round(0.5D)
round(-0.4D)
round(2.675D, 2)
round(1e300D, 2)
round(CAST('NaN' AS DOUBLE), 1)
round(12345.678, -2)
round(12345, -3)
ceil(99.5)
floor(-99.5)
floor(CAST(7 AS TINYINT))
concat('a')
concat(s, NULL)
CAST(DATE '2020-01-01' AS STRING)
CASE WHEN s IS NULL THEN 0 ELSE length(s) + 1 END
IF(m > 1, m - 1, 0)
coalesce(m, 0)
coalesce(d, i)
nvl2(i, 1, 2.5)
floor(CAST('NaN' AS DOUBLE))
IF(isnan(d), floor(d), 1)
i & 3
i | t
~i
i ^ -1
shiftleft(i, 2)
i >> 1
TRY_CAST(s AS INT)
TRY_CAST(l AS SMALLINT)
TRY_CAST(d AS DECIMAL(4,1))
s RLIKE 'a.'
s ILIKE 'A%'
