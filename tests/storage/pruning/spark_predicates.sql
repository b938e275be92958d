i = 1
i == 1
i != 1
i <> 1
i < 1
i <= 1
i > 1
i >= 1
i <=> 1
i <=> NULL
i = NULL
NOT i = NULL
i IS NULL
i IS NOT NULL
NOT (i IS NULL)
t = 1
t < 128
t > 127
t >= -128
t = -128Y
t < 1000
t IN (1, 300, NULL)
h = 128S
h > 70000
i < 3000000000
i = 2147483648
l = 9223372036854775807
l = 9223372036854775807L
l > 9223372036854775806
l = 9007199254740992D
l = 9007199254740993
l > 1.5
l = 1e0
i = 1.0
i < 1.5
i > 0.5 AND i < 2.5
i IN (1.0, 2.5)
i = '1'
i IN ('1', '2')
i IN ('1', 2)
i BETWEEN 0 AND 5
i NOT BETWEEN 0 AND 5
i BETWEEN NULL AND 5
i IN (1, 2, 3)
i IN (1, NULL)
i NOT IN (1, 2)
i NOT IN (1, NULL)
i IN (NULL)
NULL IN (1)
1 IN (i, t)
i IN (t, l)
i = t
l = i
d = i
d > f
f = 0.1
f = 0.1D
f = CAST(0.1 AS FLOAT)
f > 1
f < 1
f >= 1.5
f <= 1.5
f <> 1.5
NOT f = 1.5
NOT (f > 1)
f = 16777216
d = 0
d = -0.0
d = 0.1
d > 1
d >= 1
d < 1
d <= 1
d <> 1.5
NOT (d < 1)
NOT (d >= 1)
d = CAST('NaN' AS DOUBLE)
d <> CAST('NaN' AS DOUBLE)
d < CAST('NaN' AS DOUBLE)
d <= CAST('NaN' AS DOUBLE)
d > CAST('NaN' AS DOUBLE)
d >= CAST('NaN' AS DOUBLE)
d <=> CAST('NaN' AS DOUBLE)
d = f
d <=> f
d < f
d <= f
d IN (1.5, 0)
d IN (CAST('NaN' AS DOUBLE), 2)
d NOT IN (1.5)
d = CAST('Infinity' AS DOUBLE)
d BETWEEN 0 AND 1e300
d = '1.5'
isnan(d)
NOT isnan(f)
m = 1.5
m = 1.50
m = 1
m > 0.005
m < 99999999.991
m = 100000000000
m IN (1.5, 2, 3.33)
m = '1.5'
m = 1.5D
m = i
m > w
m = w
w = 0.1
w < 0.0000000000000000005
w = 99999999999999999999.999999999999999999
m = 0.1F
s = 'a'
s = 'A'
s < 'a'
s > 'a'
s >= 'a' AND s < 'b'
s = ''
s <> 'a'
s > 'Z'
s < '日'
s IN ('a', '日本', 'x')
s LIKE 'a%'
s LIKE '%c'
s LIKE '%b%'
s LIKE 'a_c'
s LIKE 'a\_c'
s LIKE 'a\%c'
s LIKE 'a!%c' ESCAPE '!'
s LIKE 'a!_%' ESCAPE '!'
s LIKE '_'
s LIKE '__'
s LIKE '%'
s LIKE ''
s LIKE '%a_%'
s LIKE 'it\'s%'
s LIKE '%\\\\%'
s NOT LIKE 'a%'
s LIKE NULL
s = 'it\'s \\ok'
s = "a"
s = r'a'
startswith(s, 'a')
endswith(s, 'c')
contains(s, 'b')
contains(s, '')
lower(s) = 'a'
upper(s) = 'STRASSE'
upper(s) = 'ÉA'
length(s) = 2
length(s) > 3
trim(s) = '12'
ltrim(s) = '12 '
substring(s, 1, 1) = 'a'
substring(s, 2) = 'bc'
substring(s, 0, 1) = 'a'
substring(s, -2, 1) = 'b'
substring(s, -5, 4) = 'ab'
substr(s, -1) = 'c'
substring(s, 2, -1) = ''
left(s, 2) = 'ab'
right(s, 2) = 'bc'
s || 'x' = 'ax'
concat(s, n) = 'a-5'
'x' 'y' = 'xy'
n = 1
n > 5
n = 7L
n IN (1, 7)
CAST(n AS BIGINT) = 2147483648
CAST(n AS DOUBLE) = -5
CAST(n AS DECIMAL(12,2)) = 12.00
CAST(i AS STRING) = '2013'
CAST(m AS STRING) = '1.50'
CAST(b AS STRING) = 'true'
CAST(day AS STRING) = '2020-02-29'
CAST(i AS BIGINT) + 1 = 2147483648
CAST(m AS INT) = -1
CAST(m AS DOUBLE) = 0.01
CAST(t AS DECIMAL(5,1)) = 127
CAST(b AS INT) = 1
CAST(t AS BOOLEAN)
CAST(f AS DOUBLE) = 0.1
CAST(l AS FLOAT) = CAST(1e12 AS FLOAT)
CAST(l AS DOUBLE) = 9007199254740992
CAST(ts AS DATE) = DATE '2013-01-01'
CAST(ts AS DATE) = '1969-12-31'
CAST(tn AS DATE) < DATE '1970-01-01'
CAST(day AS TIMESTAMP) = ts
CAST(tn AS TIMESTAMP) = ts
CAST(ts AS TIMESTAMP_NTZ) = tn
x = X'61'
x > X'7F'
x < X'61'
x = ''
x IN (X'', X'FF')
x = 'a'
b
NOT b
!b
b = true
b = 'false'
b <> false
b IS TRUE
b IS NOT TRUE
b IS FALSE
b IS NOT FALSE
b > false
b AND i > 0
b OR i > 0
NOT (b AND i > 0)
NOT (b OR i > 0)
b AND NULL
b OR NULL
(b OR i IS NULL) AND NOT (s LIKE 'a%' AND d > 0)
b = (i > 0)
i = 1 OR i = 2 AND b
NOT i = 1 AND b
day = DATE '2020-02-29'
day = '2020-02-29'
day > '2013'
day >= '2013-6'
day < '1970-01-01T12:00:00'
day BETWEEN '2013-01-01' AND '2013-12-31'
day IN ('2013-01-01', DATE '2000-01-01')
day < ts
day = tn
day = TIMESTAMP '2013-01-01 00:00:00'
day < TIMESTAMP '2013-01-01 00:00:01'
ts = TIMESTAMP '2020-02-29 12:30:15.123456'
ts = TIMESTAMP '2020-02-29T14:30:15.123456+02:00'
ts >= '2013-01-01'
ts >= '2013-01-01 01:00:00+01:00'
ts < '2013-06-15 08:00:00 UTC'
ts < DATE '2013-06-15'
ts = tn
ts < '1970-01-01 00:00:00'
ts >= TIMESTAMP '2013-06-15 04:00:00 America/New_York'
tn = TIMESTAMP_NTZ '2013-06-15 08:00:00'
tn < '2000-01-01 01:00:00.000001'
tn > TIMESTAMP '2013-01-01 00:00:00Z'
year(day) = 2013
month(day) = 12
day(day) = 31
dayofmonth(ts) = 29
quarter(day) = 4
dayofweek(day) = 7
weekday(day) = 0
dayofyear(day) = 366
dayofyear(day) = 60
weekofyear(day) = 1
year(ts) = 1969
hour(ts) = 23
minute(ts) = 59
second(ts) = 59
hour(tn) = 12
date(ts) = DATE '2013-06-15'
date_trunc('month', ts) = '2013-06-01'
date_trunc('WEEK', ts) = '2024-12-30'
date_trunc('hour', ts) < '1970-01-01'
trunc(day, 'YEAR') = '2013-01-01'
trunc(day, 'MM') = day
trunc(day, 'week') = day
date_add(day, 1) = '2020-03-01' AND day < '9999-01-01'
date_sub(day, 1) = '1969-12-31'
datediff(day, DATE '2013-01-01') = 364
day < '9999-01-01' AND date_add(day, 31) > '2024-01-01'
l % 2 = 1
l % -2 = -1
i % 10 = 3
i % -1 = 0
mod(i, 3) = 2
i / 2 = 0.5
i / 2 > 1
i DIV 2 = 1
l DIV 10 = 100000000000
- m = 1.5
i > -5 AND -i = 1
i < 5 AND i + 1 = 2
t BETWEEN 0 AND 50 AND t + t = 10
i > -5 AND abs(i) = 1
m BETWEEN -1000 AND 1000 AND CAST(m AS DECIMAL(9,1)) = 0
n LIKE '%12%' AND CAST(n AS INT) = 12
m + 1 = 2.5
m * 2 = 3
m * m = 2.25
m - 0.5 = 1
m / 3 = 1.11
m / 3 = 0.666666667
m <> 0 AND 10 / m < 5
i <> 0 AND 10 / i > 1
i = 0 OR 10 / i > 1
CASE WHEN i <> 0 THEN 10 / i > 1 ELSE FALSE END
IF(i = 0, NULL, 1 / i) = 1
CASE i WHEN 1 THEN 'one' WHEN 2 THEN 'two' END = 'two'
CASE WHEN b THEN i ELSE l END > 1
coalesce(i, t, 9) = 9
nvl(s, 'none') = 'none'
ifnull(i, l) IS NULL
nullif(i, 1) IS NULL
nullif(s, '') = 'a'
coalesce(b, FALSE)
isnull(i) OR isnotnull(s)
d * 2 = 3
d + f > 1
d / 2 = 0.75
r.a = 3
R.A IN (1, 2)
r.`q q`.z = '4'
r IS NULL
r.a IS NULL
arr IS NULL
arr IS NOT NULL
I = 1
`i` = 1
1 = 1
1 = 2
NULL
TRUE
1 < i
2 >= i AND 0 <= i
i = 1 -- comment
i IS DISTINCT FROM 1
i IS NOT DISTINCT FROM NULL
i = t IS NULL
s ILIKE 'A%'
s ILIKE 'stra_E'
s ILIKE '%ÉA%'
s NOT ILIKE 'A%'
s ILIKE 'a!%C' ESCAPE '!'
s NOT ILIKE 'A!_%' ESCAPE '!'
s ILIKE NULL
ilike(s, '%B%')
s RLIKE 'a'
s RLIKE '^a.c$'
s RLIKE '^[a-c]+$'
s RLIKE r'^\s\d+\s$'
s RLIKE '^\\s\\d+\\s$'
s RLIKE r'\\ok'
s RLIKE ''
s RLIKE '本$'
s RLIKE '(日|é).'
s RLIKE NULL
s NOT RLIKE '^[^a]'
NOT s RLIKE '^.{1,3}?$'
s REGEXP 'A|ß'
rlike(s, 'a_')
regexp_like(s, 'a%')
regexp(s, '\'')
concat(s, '\n') RLIKE 'a$'
concat(s, '\r') RLIKE 'a.$'
TRY_CAST(n AS INT) = 1
TRY_CAST(n AS INT) IS NULL
TRY_CAST(n AS TINYINT) > 50
TRY_CAST(s AS DOUBLE) = 12
TRY_CAST(i AS TINYINT) = 5
TRY_CAST(l AS INT) IS NULL
TRY_CAST(d AS INT) = 1
TRY_CAST(d AS BIGINT) IS NULL
TRY_CAST(m AS DECIMAL(3,1)) = 1.5
TRY_CAST(m AS INT) = 99999999
TRY_CAST(n AS BOOLEAN)
TRY_CAST(n AS DATE) IS NULL
TRY_CAST(day AS STRING) = '2013-01-01'
TRY_CAST(ts AS DATE) = DATE '2013-01-01'
TRY_CAST('x' AS INT) IS NULL
TRY_CAST('5' AS INT) = i
size(arr) = 1
size(arr) > 1
size(arr) IS NULL
cardinality(arr) = 0
size(mp) = 2
size(mp) < 2
size(mp) IS NULL
i & 1 = 1
i & t = 5
i | 4 = 7
i ^ 1 = 0
l & 9007199254740993 = 9007199254740992
~i = -1
~t < 0
(i & 3) | (t ^ 1) > 2
i & t & h = 5
i & NULL = 1
h | 256 > 300
i << 2 = 8
i << 33 = 2
t << 8 = 256
l << 3 < 0
i >> 1 = -1
l >> 60 = 7
shiftleft(h, 1) = 10
shiftright(t, 1) = -64
i & 3 + 1 = 4
-(i & 3) = -1
